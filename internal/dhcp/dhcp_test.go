package dhcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/test/place"
	"fairlead/test/process"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// lan is a network with a bridge, on which a DHCP server may run.
type lan struct {
	t      *testing.T
	ns     *netns.Namespace
	leases string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t: t, ns: kerneltest.Netns(t), leases: filepath.Join(t.TempDir(), "leases")}
	kerneltest.Run(t, l.ns, "ip", "link", "add", "br0", "type", "bridge")
	kerneltest.Run(t, l.ns, "ip", "address", "add", "192.0.2.1/24", "dev", "br0")
	kerneltest.Run(t, l.ns, "ip", "link", "set", "br0", "up")
	return l
}

// host is a sandbox on the network, whose link is eth0.
func (l *lan) host(name string) *netns.Namespace {
	l.t.Helper()
	ns := kerneltest.Netns(l.t)
	kerneltest.Run(l.t, l.ns, "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns",
		process.Seen(ns.Path()))
	kerneltest.Run(l.t, l.ns, "ip", "link", "set", name, "master", "br0", "up")
	kerneltest.Run(l.t, ns, "ip", "link", "set", "eth0", "up")
	return ns
}

// dnsmasq is a real DHCP server process.
type dnsmasq struct {
	t     *testing.T
	p     *child.Process
	lines *bufio.Scanner
}

// serve starts a server on the network with further options.
func (l *lan) serve(options ...string) *dnsmasq {
	l.t.Helper()
	cmd := exec.Command("dnsmasq", append([]string{"--no-daemon", "--conf-file=/dev/null",
		"--log-dhcp", "--port=0", "--interface=br0", "--bind-interfaces", "--dhcp-authoritative",
		"--dhcp-sequential-ip", "--no-ping", "--dhcp-leasefile=" + l.leases}, options...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := child.Start(l.t.Context(), cmd, child.Place{Netns: l.ns.File()})
	if err != nil {
		l.t.Fatal(err)
	}
	d := &dnsmasq{l.t, p, bufio.NewScanner(out)}
	l.t.Cleanup(func() { _ = p.Kill() })
	d.says("sockets bound exclusively to interface br0")
	return d
}

// says waits until the server's log contains words. The server is killed if they do not come in time.
func (d *dnsmasq) says(words string) {
	d.t.Helper()
	defer time.AfterFunc(place.Timeout, func() { _ = d.p.Kill() }).Stop()
	var said []string
	for d.lines.Scan() {
		if strings.Contains(d.lines.Text(), words) {
			return
		}
		said = append(said, d.lines.Text())
	}
	d.t.Fatalf("the server's log does not contain %q, but:\n%s", words, strings.Join(said, "\n"))
}

// stop ends the server, which writes its leases, and returns them.
func (l *lan) stop(d *dnsmasq) string {
	l.t.Helper()
	if err := d.p.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	for d.lines.Scan() { // until the last line
		continue
	}
	_ = d.p.Wait()
	text, err := os.ReadFile(l.leases)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// holding is a lease that Run keeps and renews in the background.
type holding struct {
	t      *testing.T
	leases chan Lease
	ended  chan error
	cancel context.CancelFunc
}

// start gets a lease for eth0 of a sandbox, sets its address, and keeps the lease.
func start(t *testing.T, ns *netns.Namespace, c Config) *holding {
	t.Helper()
	return startBy(t, ns, func(ctx context.Context, notify func(Lease)) error {
		c.Netns, c.Link = process.Seen(ns.Path()), "eth0"
		return Run(ctx, c, notify)
	})
}

func startBy(t *testing.T, ns *netns.Namespace, run func(context.Context, func(Lease)) error) *holding {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &holding{t, make(chan Lease, 16), make(chan error, 1), cancel}
	go func() {
		h.ended <- run(ctx, func(l Lease) {
			if !l.IsZero() {
				if err := setAddress(ns, l.Prefixes[0]); err != nil {
					t.Error(err)
				}
			}
			h.leases <- l
		})
	}()
	t.Cleanup(cancel)
	return h
}

func setAddress(ns *netns.Namespace, p netip.Prefix) error {
	return ns.Do(func() error {
		return exec.Command("ip", "address", "replace", p.String(), "dev", "eth0").Run()
	})
}

// next waits for the next lease that is reported.
func (h *holding) next() Lease {
	h.t.Helper()
	select {
	case l := <-h.leases:
		return l
	case err := <-h.ended:
		h.t.Fatalf("Run returned: %v", err)
	case <-time.After(place.Timeout):
		h.t.Fatal("timeout: no lease")
	}
	return Lease{}
}

// end stops Run, which must release the lease.
func (h *holding) end() {
	h.t.Helper()
	h.cancel()
	if err := <-h.ended; err != nil {
		h.t.Error(err)
	}
}

const dynamic = "--dhcp-range=192.0.2.100,192.0.2.101,255.255.255.0,10m"

func TestLease(t *testing.T) {
	l := newLAN(t)
	d := l.serve(dynamic, "--dhcp-option=6,192.0.2.53", "--dhcp-option=26,1400")
	before := alarm.Now()
	h := start(t, l.host("web"), Config{ClientID: "sandbox-of-the-test", Hostname: "web"})
	got := h.next()
	want := Lease{
		Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.100/24")},
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		DNS:      []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		MTU:      1400,
		Server:   netip.MustParseAddr("192.0.2.1"),
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
		cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if got.Expires.Before(before.Add(10*time.Minute)) || !got.Renew.Before(got.Rebind) ||
		!got.Rebind.Before(got.Expires) {
		t.Errorf("renewed at %v, rebound at %v, expires at %v", got.Renew, got.Rebind, got.Expires)
	}
	d.says("DHCPACK(br0) 192.0.2.100")
	h.end()
	d.says("DHCPRELEASE(br0) 192.0.2.100")
	if left := l.stop(d); left != "" {
		t.Errorf("the server still has the lease:\n%s", left)
	}
}

// TestRoutes checks that classless routes replace the default gateway.
func TestRoutes(t *testing.T) {
	l := newLAN(t)
	l.serve(dynamic, "--dhcp-option=3,192.0.2.7",
		"--dhcp-option=121,198.51.100.0/24,192.0.2.254,203.0.113.0/25,0.0.0.0,0.0.0.0/0,192.0.2.1")
	got := start(t, l.host("web"), Config{}).next()
	routes := []model.Route{
		{To: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("192.0.2.254")},
		{To: netip.MustParsePrefix("203.0.113.0/25")},
	}
	equal := cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})
	if diff := cmp.Diff(routes, got.Routes, equal); diff != "" {
		t.Errorf("routes: want (-), got (+):\n%s", diff)
	}
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, got.Gateways, equal); diff != "" {
		t.Errorf("gateways: want (-), got (+):\n%s", diff)
	}
}

// TestLast checks that a client that returns gets its last address if that is free.
func TestLast(t *testing.T) {
	l := newLAN(t)
	l.serve(dynamic)
	for i, want := range []string{"192.0.2.101/24", "192.0.2.100/24"} {
		h := start(t, l.host(fmt.Sprint("web", i)), Config{Last: netip.MustParseAddr("192.0.2.101")})
		if got := h.next(); got.Prefixes[0] != netip.MustParsePrefix(want) {
			t.Errorf("leased %v, want %s", got.Prefixes[0], want)
		}
	}
}

// hastened is a client that renews each new lease at once: the server's shortest
// lease time is two minutes.
type hastened struct{ *client }

func (h hastened) acquire(ctx context.Context) (grant, error) {
	g, err := h.client.acquire(ctx)
	g.Renew = h.now()
	return g, err
}

// TestRenewal checks that the client renews its lease from the leased address.
func TestRenewal(t *testing.T) {
	l := newLAN(t)
	d := l.serve(dynamic)
	ns := l.host("web")
	x, err := newClient(Config{Netns: process.Seen(ns.Path()), Link: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	h := startBy(t, ns, func(ctx context.Context,
		notify func(Lease)) error {
		return maintain(ctx, hastened{x}, Config{}, notify)
	})
	first := h.next()
	second := h.next()
	if second.Prefixes[0] != first.Prefixes[0] || !second.Expires.After(first.Expires) {
		t.Errorf("the renewal of %+v is %+v", first, second)
	}
	h.end()
	d.says("DHCPRELEASE(br0)")
}

// TestExtend extends a lease in each possible mode, and at a server that refuses.
func TestExtend(t *testing.T) {
	l := newLAN(t)
	ns := l.host("web")
	d := l.serve(dynamic)
	x, err := newClient(Config{Netns: process.Seen(ns.Path()), Link: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := x.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := setAddress(ns, g.Prefixes[0]); err != nil {
		t.Fatal(err)
	}
	if more, err := x.extend(t.Context(), g, false); err != nil || more.Prefixes[0] != g.Prefixes[0] {
		t.Errorf("ask the lease's server: %+v, %v", more, err)
	}
	// A DHCP client runs in the sandbox.
	var other net.PacketConn
	err = ns.Do(func() (err error) {
		other, err = net.ListenPacket("udp4", ":68")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if more, err := x.extend(t.Context(), g, false); err != nil || more.Prefixes[0] != g.Prefixes[0] {
		t.Errorf("ask the lease's server while port 68 is in use: %+v, %v", more, err)
	}
	if more, err := x.extend(t.Context(), g, true); err != nil || more.Prefixes[0] != g.Prefixes[0] {
		t.Errorf("ask any server: %+v, %v", more, err)
	}
	l.stop(d)
	if err := os.Remove(l.leases); err != nil {
		t.Fatal(err)
	}
	l.serve("--dhcp-range=192.0.2.200,192.0.2.201,255.255.255.0,10m")
	for _, anyServer := range []bool{false, true} {
		if _, err := x.extend(t.Context(), g, anyServer); !errors.Is(err, errRefused) {
			t.Errorf("a server with another range (any server %v): %v, want that it refuses", anyServer, err)
		}
	}
}

// TestConflict checks the case that another host uses an address of the server's
// range.
func TestConflict(t *testing.T) {
	l := newLAN(t)
	squatter := l.host("squatter")
	kerneltest.Run(t, squatter, "ip", "address", "add", "192.0.2.100/24", "dev", "eth0")
	d := l.serve(dynamic)
	h := start(t, l.host("web"), Config{})
	if got := h.next(); got.Prefixes[0].Addr() != netip.MustParseAddr("192.0.2.101") {
		t.Errorf("leased %v, which is in use", got.Prefixes[0])
	}
	d.says("DHCPDECLINE(br0) 192.0.2.100")
	h.end()
}

// TestErrors checks that failed attempts end in a bounded time, with an error that
// says what to do.
func TestErrors(t *testing.T) {
	l := newLAN(t)
	quiet := l.host("quiet")
	down := l.host("lower")
	kerneltest.Run(t, down, "ip", "link", "set", "eth0", "down")
	gone := kerneltest.Netns(t)
	bare := kerneltest.Netns(t)
	for name, s := range map[string]struct {
		config Config
		is     error
		words  string
	}{
		"no server": {Config{Netns: process.Seen(quiet.Path()), Link: "eth0"}, ErrNoServer,
			"keep a DHCP lease on eth0 of " + process.Seen(quiet.Path()) +
				": no DHCP server answers: check that the network behind the link"},
		"a link down": {Config{Netns: process.Seen(down.Path()), Link: "eth0"}, nil,
			"the link is down: set it up first"},
		"no such link": {Config{Netns: process.Seen(bare.Path()), Link: "eth0"}, nil, "find the link"},
		"no Ethernet":  {Config{Netns: process.Seen(bare.Path()), Link: "lo"}, nil, "the link has no Ethernet address"},
		"no sandbox":   {Config{Netns: "/nowhere", Link: "eth0"}, os.ErrNotExist, "open network namespace"},
	} {
		err := Run(t.Context(), s.config, func(l Lease) { t.Errorf("%s: leased %+v", name, l) })
		if err == nil || !strings.Contains(err.Error(), s.words) || s.is != nil && !errors.Is(err, s.is) {
			t.Errorf("%s: %v, want %v with %q", name, err, s.is, s.words)
		}
	}

	// A new sandbox with the name of one that has ended is another sandbox.
	x, err := newClient(Config{Netns: process.Seen(gone.Path()), Link: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	x.Netns = process.Seen(quiet.Path())
	if _, err := x.acquire(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("another sandbox: %v, want %v", err, ErrGone)
	}
}

// TestInterrupted checks that Run returns if its context ends while no server
// answers.
func TestInterrupted(t *testing.T) {
	l := newLAN(t)
	h := start(t, l.host("quiet"), Config{})
	h.end()
}
