package load_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
	"fairlead/internal/lab/load"
	"fairlead/test/process"
)

// at returns a port on the loopback address.
func at(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(v4), uint16(port))
}

// eachProtocol runs a test for every workload, because they open streams differently.
func eachProtocol(t *testing.T, f func(*testing.T, load.Spec)) {
	for _, w := range load.Workloads() {
		t.Run(string(w), func(t *testing.T) { f(t, short(load.Spec{Workload: w, Streams: 2})) })
	}
}

// checkClientError checks that a run returns an error of the client, of the given
// kind, that names the target.
func checkClientError(t *testing.T, p pair, target netip.AddrPort, s load.Spec, kind error) {
	t.Helper()
	_, err := load.Run(t.Context(), p.client, p.server, target, s, load.Hooks{})
	var side *load.Error
	if !errors.Is(err, kind) || !errors.As(err, &side) || side.Side != load.ClientSide {
		t.Fatalf("got %v, want %v from the client", err, kind)
	}
	if !strings.Contains(err.Error(), target.String()) {
		t.Errorf("%q does not name %s", err, target)
	}
}

func TestRefusedTarget(t *testing.T) {
	p := newPair(t, newNetns(t))
	good := p.listen(t, v4)
	eachProtocol(t, func(t *testing.T, s load.Spec) {
		checkClientError(t, p, at(1), s, load.ErrRefused)
		p.run(t, good, s)
	})
}

// TestSilentTarget: a bound socket that no process reads from, and from whose
// backlog no process accepts, behaves like a dead server behind a live proxy.
func TestSilentTarget(t *testing.T) {
	t.Parallel()
	ns := newNetns(t)
	p := newPair(t, ns)
	good := p.listen(t, v4)
	silent := silentPort(t, ns, 16)
	eachProtocol(t, func(t *testing.T, s load.Spec) {
		checkClientError(t, p, silent, s, load.ErrNoAnswer)
		p.run(t, good, s)
	})
}

// TestDroppedTarget: a listener whose backlog is full drops SYNs, as a firewall
// would.
func TestDroppedTarget(t *testing.T) {
	t.Parallel()
	ns := newNetns(t)
	p := newPair(t, ns)
	p.listen(t, v4)
	full := silentPort(t, ns, 0)
	// A backlog of n has room for n+1 connections; it must be full for the client.
	within(t, ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(full.Port()), Addr: full.Addr().As4()})
	})
	for _, w := range []load.Workload{load.TCPBulk, load.TCPCRR} {
		t.Run(string(w), func(t *testing.T) {
			checkClientError(t, p, full, short(load.Spec{Workload: w}), load.ErrNoAnswer)
		})
	}
}

// silentPort binds TCP and UDP in ns and never reads from either.
func silentPort(t *testing.T, ns *os.File, backlog int) netip.AddrPort {
	t.Helper()
	const port = 4000
	within(t, ns, func() error {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return err
			}
			if kind == unix.SOCK_STREAM {
				if err := unix.Listen(fd, backlog); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return at(port)
}

// TestServerDiesInTheWindow: the run fails if the server dies in the window, but
// the client can be used for another run.
func TestServerDiesInTheWindow(t *testing.T) {
	ns := newNetns(t)
	p := newPair(t, ns)
	target := p.listen(t, v4)
	kill := func() error { return unix.Kill(p.server.PID(), unix.SIGKILL) }
	spec := short(load.Spec{Workload: load.TCPRR})
	if _, err := load.Run(t.Context(), p.client, p.server, target, spec, load.Hooks{Begin: kill}); err == nil {
		t.Fatal("no error")
	} else if !strings.Contains(err.Error(), "load server") {
		t.Errorf("%v does not name the server", err)
	}
	if err := p.server.Close(); err != nil {
		t.Errorf("Close returned the error of the run again: %v", err)
	}
	s, err := load.StartServer(t.Context(), child.Place{Netns: ns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	again := pair{p.client, s}
	again.run(t, again.listen(t, v4), spec)
}

func TestListenReturnsServerError(t *testing.T) {
	p := newPair(t, newNetns(t))
	first := p.listen(t, v4)
	for _, addr := range []string{"192.0.2.1:0", "[2001:db8::1]:80"} {
		_, err := p.server.Listen(t.Context(), netip.MustParseAddrPort(addr))
		var side *load.Error
		if !errors.As(err, &side) || side.Side != load.ServerSide || !strings.Contains(err.Error(), "listen on") {
			t.Errorf("listen on %s: %v", addr, err)
		}
	}
	// A failed Listen leaves the old port open.
	p.run(t, first, short(load.Spec{Workload: load.TCPRR}))
}

func TestUnspecifiedAddressServesBothFamilies(t *testing.T) {
	p := newPair(t, newNetns(t))
	bound := p.listen(t, "::")
	for _, ip := range []string{v4, "127.0.0.7", v6} {
		target := netip.AddrPortFrom(netip.MustParseAddr(ip), bound.Port())
		for _, w := range load.Workloads() {
			t.Run(ip+" "+string(w), func(t *testing.T) {
				checkMoved(t, p.run(t, target, short(load.Spec{Workload: w, Streams: 2})))
			})
		}
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	p := process.Run(t, "parent", child.Place{Netns: newNetns(t)})
	line, err := p.Out.ReadString('\n')
	if err != nil {
		t.Fatalf("the parent printed %q: %v", line, err)
	}
	var watched []int
	for _, field := range strings.Fields(line) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		watched = append(watched, fd)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, fd := range watched {
		n, err := 0, error(unix.EINTR) // of a signal of Go's runtime
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
		}
		if n != 1 || err != nil {
			t.Errorf("a child outlived its parent: %d, %v", n, err)
		}
	}
}

// parent is a role: it runs traffic until it is killed, and prints the children's
// process ids.
func parent() int {
	bg := context.Background()
	c, err := load.StartClient(bg, child.Place{})
	if err != nil {
		return 1
	}
	s, err := load.StartServer(bg, child.Place{})
	if err != nil {
		return 1
	}
	target, err := s.Listen(bg, at(0))
	if err != nil {
		return 1
	}
	spec := load.Spec{Workload: load.TCPBulk, Duration: time.Hour}
	_, _ = load.Run(bg, c, s, target, spec, load.Hooks{Begin: func() error {
		fmt.Println(c.PID(), s.PID())
		return nil
	}})
	return 0
}

func TestRunsLeakNoResources(t *testing.T) {
	p := newPair(t, newNetns(t))
	target := p.listen(t, v6)
	round := func() {
		for _, w := range load.Workloads() {
			s := load.Spec{Workload: w, Streams: 2, Duration: 20 * time.Millisecond}
			p.run(t, target, s)
			if _, err := load.Run(t.Context(), p.client, p.server, at(1), s, load.Hooks{}); err == nil {
				t.Fatal("a port without a listener answered")
			}
		}
	}
	round()
	before := p.usage(t)
	for range 4 { // each with twelve runs
		round()
	}
	// A goroutine that has sent its answer may still be ending.
	after := p.usage(t)
	for end := time.Now().Add(30 * time.Second); after.exceeds(before) && time.Now().Before(end); after = p.usage(t) {
		runtime.Gosched()
	}
	if after.exceeds(before) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// usage is the number of open descriptors and goroutines, which must not grow.
// Threads may grow, because the runtime keeps them.
type usage struct{ ours, client, server, goroutines int }

func (u usage) exceeds(v usage) bool {
	return u.ours > v.ours || u.client > v.client || u.server > v.server || u.goroutines > v.goroutines
}

func (p pair) usage(t *testing.T) usage {
	t.Helper()
	return usage{
		ours: descriptors(t, os.Getpid()), client: descriptors(t, p.client.PID()),
		server: descriptors(t, p.server.PID()), goroutines: runtime.NumGoroutine(),
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestInvalidSpecs(t *testing.T) {
	for name, s := range map[string]load.Spec{
		"no workload":        {},
		"unknown workload":   {Workload: "sctp"},
		"spinning bulk":      {Workload: load.TCPBulk, Mode: load.Spin},
		"transactions down":  {Workload: load.TCPRR, Direction: load.Down},
		"bulk reset":         {Workload: load.TCPBulk, Close: load.RST},
		"unmarkable packets": {Workload: load.UDPPPS, Size: 4},
		"giant datagram":     {Workload: load.UDPBulk, Size: 70000},
		"negative rate":      {Workload: load.TCPRR, Rate: -1},
		"too many streams":   {Workload: load.TCPRR, Streams: 100000},
		"counted bulk":       {Workload: load.TCPBulk, Count: 10},
		"count, two streams": {Workload: load.TCPCRR, Count: 10, Streams: 2},
		"flows, no address":  {Workload: load.UDPPPS, Flows: 1},
	} {
		s.Duration = time.Second
		if _, err := s.Normal(); err == nil {
			t.Errorf("%s: accepted %+v", name, s)
		}
	}
	if _, err := (load.Spec{Workload: load.TCPRR}).Normal(); err == nil {
		t.Error("accepted a run without a window")
	}
}
