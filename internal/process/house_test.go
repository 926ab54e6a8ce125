package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/process/hosted"
	"fairlead/internal/proxy"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
	"fairlead/test/features"
	"fairlead/test/place"
	"fairlead/test/process"
)

const (
	// daemonRole is a daemon that is stopped or killed.
	daemonRole = "service-daemon"
	// idleRole is a process that keeps a sandbox alive.
	idleRole = "service-idle"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "daemon" { // by Start, in a role of a test
		os.Exit(1)
	}
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, daemonRole: process.Main(runDaemon), idleRole: process.Idle,
		lockRole: process.Main(runLock), startRole: process.Main(runStart),
		uninstallRole: process.Main(runUninstall)})
	os.Exit(m.Run())
}

// order configures the daemon.
type order struct {
	Run, State, Socket string
	TearDown           bool
	Facts              plan.Facts
}

// runDaemon is Run without eBPF programs, which would affect the whole machine. It ends
// when its standard input is closed.
func runDaemon(do order) error {
	opt := Options{Run: do.Run, State: do.State, Socket: do.Socket, TearDown: do.TearDown,
		Ready: process.Ready, Log: slog.New(slog.DiscardHandler)}
	files, err := store.OpenFile(store.Places{State: opt.State, Run: opt.Run})
	if err != nil {
		return err
	}
	defer files.Close()
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		return err
	}
	defer host.Close()
	p := newProxies(opt.Run, host.Netns(), opt.Log)
	d, err := daemon.New(daemon.Config{Kernel: host, Flows: host, Inspector: host, Counters: host, Host: host,
		Store: files, Sandboxes: sandbox.Finder{}, Facts: do.Facts, Log: opt.Log,
		StartProxy: p.start, FindProxy: p.find, ProxyEnded: p.ended})
	if err != nil {
		return err
	}
	idle := newIdle(false)
	certificates, adopt := newCertificates(opt)
	node, err := newNode(opt, host, d, idle, certificates)
	if err != nil {
		return err
	}
	adopt(node)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer cancel(); process.Idle() }()
	err = serve(ctx, opt, d, hosted.NewRunner(hosted.Options{Log: opt.Log}), node, idle)
	if err == nil && opt.TearDown {
		err = d.TearDown(context.Background())
	}
	return err
}

// house is a network namespace that acts as a host, with a sandbox, and with one daemon
// after another.
type house struct {
	*testing.T
	opt     Options
	ns      *netns.Namespace
	sandbox *netns.Namespace
	pid     string
	// end kills the process in the sandbox.
	end func() error
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir := t.TempDir()
	h := &house{T: t, opt: Options{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"),
		Socket: filepath.Join(dir, "s")}}
	if err := MakeDirs(h.opt); err != nil {
		t.Fatal(err)
	}
	h.ns, h.sandbox = kerneltest.Netns(t), kerneltest.Netns(t)
	p := process.Run(t, idleRole, child.Place{Netns: h.sandbox.File()})
	h.end = p.Kill
	h.pid = fmt.Sprint(p.Cmd.Process.Pid)
	t.Cleanup(func() {
		if p := h.proxy(); p != nil {
			_ = p.Close()
		}
	})
	return h
}

// daemonProcess is a running daemon.
type daemonProcess struct{ *process.Process }

// stop ends the daemon as SIGTERM does.
func (d daemonProcess) stop(t *testing.T) {
	t.Helper()
	d.In.Close()
	if err := d.Wait(); err != nil {
		t.Error(err)
	}
}

// daemon starts the next daemon.
func (h *house) daemon() daemonProcess {
	h.Helper()
	do := order{h.opt.Run, h.opt.State, h.opt.Socket, h.opt.TearDown, features.Facts(h)}
	return daemonProcess{process.Start(h, daemonRole, do, child.Place{Netns: h.ns.File()})}
}

// proxy returns the running proxy, or nil.
func (h *house) proxy() *proxy.Proxy {
	h.Helper()
	p, err := proxy.Find(context.Background(), newProxies(h.opt.Run, h.ns.File(), slog.New(slog.DiscardHandler)).at)
	if err != nil {
		h.Error(err)
	}
	return p
}

// pidOfProxy returns the proxy's PID, or 0 if there is no proxy.
func (h *house) pidOfProxy() int {
	h.Helper()
	p := h.proxy()
	if p == nil {
		return 0
	}
	if err := p.Part(); err != nil {
		h.Error(err)
	}
	return p.PID()
}

// publish starts an echo server in the sandbox, attaches the sandbox and publishes the
// server via proxy on ports 8080 and 8081.
func (h *house) publish() {
	h.Helper()
	place.Serve(h, h.sandbox.Do, ":80", place.Echo)
	client := admin.NewClient(h.opt.Socket)
	lan := model.Network{Name: "lan", Driver: model.DriverBridge,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("172.30.0.0/16")}}}
	_, err := admin.CreateNetwork.Do(context.Background(), client, admin.NetworkRequest{Network: lan})
	if err == nil {
		_, err = admin.Attach.Do(context.Background(), client,
			api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: h.pid}})
	}
	if err == nil {
		_, err = admin.Publish.Do(context.Background(), client, api.PublishRequest{Target: h.pid,
			Publishes: []model.Publish{
				{Via: model.ViaProxy, Proto: model.TCP, HostPorts: model.Port(8080), Ports: model.Port(80)},
				{Via: model.ViaProxy, Proto: model.TCP, HostPorts: model.Port(8081), Ports: model.Port(80)}}})
	}
	if err != nil {
		h.Fatal(err)
	}
}

// The published ports.
const (
	port8080 = "127.0.0.1:8080"
	port8081 = "127.0.0.1:8081"
)

// dial connects to a published port.
func dial(port string) (net.Conn, error) { return net.DialTimeout("tcp", port, place.Timeout) }

// echoes sends a text on a connection and waits for its echo.
func echoes(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(place.Timeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len("hello")))
	return err
}

// answered opens a connection to the port and waits for an echo.
func answered(port string) error {
	conn, err := dial(port)
	if err != nil {
		return err
	}
	return errors.Join(echoes(conn), conn.Close())
}

// opens waits until the port answers.
func (h *house) opens(port string) {
	h.Helper()
	deadline := time.Now().Add(place.Timeout)
	if err := h.ns.Do(func() error {
		for {
			if err := answered(port); err == nil || time.Now().After(deadline) {
				return err
			}
			time.Sleep(time.Millisecond) // the processes need the CPU
		}
	}); err != nil {
		h.Fatal(err)
	}
}

// load opens one connection after the other until stop is closed, and measures the
// longest time between two of them.
type load struct {
	stop    chan struct{}
	done    chan error
	longest time.Duration
	count   int
}

func (h *house) load() *load {
	l := &load{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		l.done <- h.ns.Do(func() error {
			for last := time.Now(); ; l.count++ {
				select {
				case <-l.stop:
					return nil
				default:
				}
				if err := answered(port8080); err != nil {
					return err
				}
				l.longest, last = max(l.longest, time.Since(last)), time.Now()
			}
		})
	}()
	return l
}

func (l *load) end(t *testing.T, what string) {
	t.Helper()
	close(l.stop)
	if err := <-l.done; err != nil {
		t.Errorf("%s: %v", what, err)
	}
	t.Logf("%s: %d connections, at most %v between two of them", what, l.count, l.longest)
}
