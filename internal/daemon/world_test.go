package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/daemon"
	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
	"fairlead/test/daemons"
	"fairlead/test/features"
	"fairlead/test/place"
	"fairlead/test/process"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, "idle": process.Idle,
		daemonRole: process.Main(runDaemon), daemons.Role: daemons.Main})
	os.Exit(m.Run())
}

// world is a host, in a temporary network namespace, and a daemon on it.
type world struct {
	testing.TB
	end *testEnd
	*daemon.Daemon
	host   *kernel.Host
	store  *store.File
	at     store.Places
	finder sandbox.Finder
	// sandboxes, if not nil, replaces the finder.
	sandboxes daemon.Sandboxes
	dhcp      leases.DHCP
	facts     plan.Facts
	changed   chan struct{}
	stop      func()
	// wrap, if not nil, replaces the host.
	wrap allOfHost
	// counts and containers are as in daemon.Config.
	counts     stats.CountReals
	containers services.Containers
	// forgetful makes the daemon read notes and write none.
	forgetful bool
	// pins is as in kernel.Options.
	pins string
	// killed is the process of the daemon that kill9 started last.
	killed int
	meter  daemon.Meter
	// gateway is as in daemon.Config.
	gateway gateway.Runner
	// hold is the OutboundHold of daemon.Config.
	hold time.Duration
	// startProxy, if not nil, replaces proxy.Start. life ends with the daemon.
	startProxy func(life context.Context) (engine.Proxy, error)
	// proxyEnded is as in daemon.Config. proxy is the PID of the last proxy, before whose start onProxy is called if it
	// is not nil: see countProxies.
	proxyEnded chan struct{}
	proxy      int
	proxyDone  <-chan struct{}
	onProxy    func()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ns := kerneltest.Netns(t)
	host, err := kernel.Open(ns.Path(), kernel.Options{Rest: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return worldOf(t, host)
}

// allOfHost is what a daemon uses of a host.
type allOfHost interface {
	engine.Kernel
	engine.Flows
	engine.Inspector
	stats.Counters
	daemon.Host
}

// worldOf returns a world with an existing host.
func worldOf(t testing.TB, host *kernel.Host) *world {
	t.Helper()
	end := &testEnd{}
	t.Cleanup(end.reach)
	w := &world{TB: t, end: end, host: host, at: store.Places{State: t.TempDir(), Run: t.TempDir()},
		facts: features.Facts(t), changed: make(chan struct{}, 1)}
	w.finder.NetnsDir = t.TempDir()
	return w
}

// start runs a daemon until stop is called or the test ends.
func (w *world) start() *world {
	w.Helper()
	s, err := store.OpenFile(w.at)
	if err != nil {
		w.Fatal(err)
	}
	host := w.wrap
	if host == nil {
		host = w.host
	}
	finder := w.sandboxes
	if finder == nil {
		finder = w.finder
	}
	var passing services.Notes = s.Passing()
	if w.forgetful {
		passing = unwritten{passing}
	}
	life, end := context.WithCancel(context.Background()) // ends with the daemon
	d, err := daemon.New(daemon.Config{
		Kernel: host, Flows: host, Inspector: host, Counters: host, Host: host, Store: s, Sandboxes: finder,
		DHCP: w.dhcp, ProxyEnded: w.proxyEnded, Facts: w.facts, Meter: w.meter, Gateway: w.gateway,
		OutboundHold: w.hold,
		CountReals:   w.counts, Containers: w.containers, Lasting: s.Lasting(), Passing: passing, DialReal: w.dialReal,
		StartProxy: func(context.Context) (engine.Proxy, error) {
			if w.startProxy != nil {
				return w.startProxy(life)
			}
			return proxy.Start(life, child.Place{Netns: w.host.Netns()})
		},
		Log: slog.New(slog.NewTextHandler(testLog{w, w.end}, nil)),
		Changed: func() {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Daemon, w.store = d, s
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		end()
		select {
		case err := <-ended:
			if err != nil {
				w.Error(err)
			}
		case <-time.After(2 * place.Timeout):
			w.Fatal("timeout: the daemon has not ended")
		}
		if err := s.Close(); err != nil {
			w.Error(err)
		}
	}
	w.Cleanup(w.stop)
	return w
}

// dialReal makes checks dial from the host's namespace.
func (w *world) dialReal(model.VirtualService, model.RealServer) health.DialFunc {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		failed := w.host.Do(func() error { conn, err = (&net.Dialer{}).DialContext(ctx, network, address); return nil })
		return conn, errors.Join(err, failed)
	}
}

// record returns the stored record of the host.
func (w *world) record() (store.Record, error) { return w.store.Load() }

// testLog is the log of a test until its end. Goroutines of proxies, which outlive their daemon, can log later.
type testLog struct {
	testing.TB
	end *testEnd
}

func (l testLog) Write(line []byte) (int, error) {
	l.end.mu.Lock()
	defer l.end.mu.Unlock()
	if !l.end.reached {
		l.Logf("%s", strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// testEnd is the end of a test.
type testEnd struct {
	mu      sync.Mutex
	reached bool
}

func (e *testEnd) reach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reached = true
}

// watchedSandbox is a process in a network namespace that ends with it.
type watchedSandbox struct {
	*process.Process
	pid string
}

func (w *world) watchedSandbox() watchedSandbox {
	w.Helper()
	ns, err := netns.New()
	if err != nil {
		w.Fatal(err)
	}
	defer ns.Close()
	p := process.Run(w, "idle", child.Place{Netns: ns.File()})
	return watchedSandbox{p, fmt.Sprint(p.Cmd.Process.Pid)}
}

func (b watchedSandbox) kill() { _ = b.Kill() }

// sh runs a command line in the sandbox.
func (b watchedSandbox) sh(t testing.TB, line string) string {
	t.Helper()
	return shell.Run(t, b.in, line)
}

// in runs fn inside the sandbox.
func (b watchedSandbox) in(fn func() error) error {
	ns, err := netns.Open("/proc/" + b.pid + "/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(fn)
}

// do runs fn inside the sandbox. The test fails if fn returns an error.
func (b watchedSandbox) do(t testing.TB, fn func() error) {
	t.Helper()
	if err := b.in(fn); err != nil {
		t.Error(err)
	}
}

// reaches fails the test unless a connection to the address succeeds.
func (b watchedSandbox) reaches(t testing.TB, addr string) {
	t.Helper()
	b.do(t, func() error { return dial(addr) })
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, place.Timeout)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// serves accepts connections on the host until stop is called or the test ends.
func (w *world) serves(addr string) (stop func()) {
	w.Helper()
	return place.Serve(w, w.host.Do, addr, place.Hangup)
}

// serves accepts connections in the sandbox until the test ends.
func (b watchedSandbox) serves(t testing.TB, addr string) {
	t.Helper()
	place.Serve(t, b.in, addr, place.Hangup)
}

func (w *world) sh(line string) string { w.Helper(); return shell.Run(w, w.host.Do, line) }

// until waits for a condition. It checks the condition after each change that the
// daemon reports.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	deadline := time.After(place.Timeout)
	for !holds() {
		select {
		case <-w.changed:
		case <-deadline:
			w.Fatalf("timeout: %s", what)
		}
	}
}

// carried is a command that waits until the kernel has handled carrier changes, on
// which states, addresses and routes depend. The kernel handles those of a link when
// it is asked about the link (Linux 6.8), and of others some time later.
const carried = "ip -o link | sed 's/^[0-9]*: /link show dev /; s/[@:].*//' | ip -force -batch - >/dev/null 2>&1; "

// links returns the links of the host.
func (w *world) links() string { w.Helper(); return w.sh(carried + "ip -o link") }

// snapshot returns everything on the host that the daemon could leave behind.
func (w *world) snapshot() string {
	w.Helper()
	w.sh(carried + "true")
	return place.Snapshot(w, w.host.Do)
}

func (w *world) unchanged(before string) {
	w.Helper()
	w.sh(carried + "true")
	place.Unchanged(w, w.host.Do, before)
}

// nothingLeft waits until nothing is attached, and checks that the host is as before. The kernel
// deletes the links of a dead namespace some time after its last process has ended.
func (w *world) nothingLeft(before string) {
	w.Helper()
	w.until("nothing is left", w.Empty)
	for end := time.Now().Add(place.Timeout); w.snapshot() != before && time.Now().Before(end); {
	}
	w.unchanged(before)
}

var lan = model.Network{Name: "lan", Driver: model.DriverBridge, Subnets: []model.Subnet{
	{Prefix: netip.MustParsePrefix("172.30.0.0/16")}, {Prefix: netip.MustParsePrefix("fd00:30::/64")}}}

func (w *world) network(n model.Network) {
	w.Helper()
	if _, err := w.CreateNetwork(n, false); err != nil {
		w.Fatal(err)
	}
}

func (w *world) attach(req api.AttachRequest) api.Result {
	w.Helper()
	r, err := w.Attach(context.Background(), req)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// to returns the request to attach a sandbox to the network lan.
func to(b watchedSandbox) api.AttachRequest {
	return api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: b.pid}}
}

var prefix = netip.MustParsePrefix

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, prefix(text))
	}
	return all
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
