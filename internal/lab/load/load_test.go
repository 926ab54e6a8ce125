package load_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/child"
	"fairlead/internal/lab/load"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{load.Role: load.Main, "parent": parent})
	os.Exit(m.Run())
}

const (
	v4 = "127.0.0.1"
	v6 = "::1"
)

// newNetns makes a network namespace whose only link is the loopback, which is up.
func newNetns(t testing.TB) *os.File {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	type made struct {
		ns  *os.File
		err error
	}
	out := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends in its namespace
		ns, err := unshare()
		out <- made{ns, err}
	}()
	m := <-out
	if m.err != nil {
		t.Fatalf("make network namespace: %v", m.err)
	}
	t.Cleanup(func() { m.ns.Close() })
	return m.ns
}

func unshare() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return nil, err
	}
	return os.Open("/proc/thread-self/ns/net")
}

// within runs f on a thread in the namespace.
func within(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	out := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			out <- err
			return
		}
		out <- f()
	}()
	if err := <-out; err != nil {
		t.Fatal(err)
	}
}

// pair is a client and a server in one namespace.
type pair struct {
	client *load.Client
	server *load.Server
}

func newPair(t testing.TB, ns *os.File) pair {
	t.Helper()
	at := child.Place{Netns: ns}
	c, err := load.StartClient(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	s, err := load.StartServer(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context has ended, so the children may have been killed.
		_ = c.Close()
		_ = s.Close()
	})
	return pair{c, s}
}

func (p pair) listen(t testing.TB, ip string) netip.AddrPort {
	t.Helper()
	addr, err := p.server.Listen(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(ip), 0))
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// run runs a workload. If a process had no CPU time, so that its peer has given up or nothing was counted, it runs the
// workload again, and in a longer window.
func (p pair) run(t testing.TB, target netip.AddrPort, s load.Spec) load.Measurement {
	t.Helper()
	for range 3 {
		m, err := load.Run(t.Context(), p.client, p.server, target, s, load.Hooks{})
		if err == nil && counted(m) {
			return m
		}
		if err != nil && !errors.Is(err, load.ErrNoAnswer) {
			t.Fatal(err)
		}
		s.Duration *= 5
	}
	m, err := load.Run(t.Context(), p.client, p.server, target, s, load.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// counted reports whether a measurement has a value for each metric.
func counted(m load.Measurement) bool {
	for name, v := range m.Metrics() {
		if v <= 0 && name != "loss" {
			return false
		}
	}
	up, down := m.Spec.Direction != load.Down, m.Spec.Direction != load.Up
	return m.Spec.Workload.HTTP() || (m.BytesUp > 0 || !up) && (m.BytesDown > 0 || !down)
}

// short returns a spec of a run that is just long enough to count something.
func short(s load.Spec) load.Spec {
	s.Warmup, s.Duration = 20*time.Millisecond, 150*time.Millisecond
	return s
}

// scenarios returns all workloads with all their options.
func scenarios() map[string]load.Spec {
	return map[string]load.Spec{
		"tcp-bulk up":         {Workload: load.TCPBulk},
		"tcp-bulk down":       {Workload: load.TCPBulk, Direction: load.Down, Streams: 3},
		"tcp-bulk both":       {Workload: load.TCPBulk, Direction: load.Both, Streams: 2},
		"tcp-bulk at a rate":  {Workload: load.TCPBulk, Direction: load.Both, Rate: 200e6},
		"tcp-rr block":        {Workload: load.TCPRR, Streams: 2},
		"tcp-rr spin":         {Workload: load.TCPRR, Mode: load.Spin, Size: 100},
		"tcp-rr at a rate":    {Workload: load.TCPRR, Streams: 2, Rate: 1000},
		"tcp-rr loaded":       {Workload: load.TCPRR, Size: 100, Background: 2},
		"tcp-crr fin":         {Workload: load.TCPCRR, Streams: 2},
		"tcp-crr rst":         {Workload: load.TCPCRR, Close: load.RST, Streams: 2, Size: 100},
		"tcp-crr at a rate":   {Workload: load.TCPCRR, Rate: 500},
		"udp-bulk up":         {Workload: load.UDPBulk, Streams: 2},
		"udp-bulk both":       {Workload: load.UDPBulk, Direction: load.Both},
		"udp-bulk down":       {Workload: load.UDPBulk, Direction: load.Down},
		"udp-bulk at a rate":  {Workload: load.UDPBulk, Rate: 50e6},
		"udp-bulk 32 bytes":   {Workload: load.UDPBulk, Size: 32, Rate: 1e6},
		"udp-rr block":        {Workload: load.UDPRR, Streams: 2},
		"udp-rr spin":         {Workload: load.UDPRR, Mode: load.Spin, Size: 32},
		"tcp-crr client-fin":  {Workload: load.TCPCRR, Close: load.ClientFIN, Size: 100},
		"udp-query":           {Workload: load.UDPQuery, Streams: 2},
		"udp-query 512":       {Workload: load.UDPQuery, Size: 512},
		"udp-query at a rate": {Workload: load.UDPQuery, Rate: 500},
		"udp-pps":             {Workload: load.UDPPPS},
		"udp-pps at a rate":   {Workload: load.UDPPPS, Rate: 20000, Streams: 2},
	}
}

func TestEveryWorkloadCounts(t *testing.T) {
	p := newPair(t, newNetns(t))
	for _, ip := range []string{v4, v6} {
		target := p.listen(t, ip)
		for name, s := range scenarios() {
			t.Run(fmt.Sprintf("%s %s", ip, name), func(t *testing.T) {
				m := p.run(t, target, short(s))
				checkMoved(t, m)
				checkConsistent(t, m)
				checkMetrics(t, m)
			})
		}
	}
}

func checkMoved(t *testing.T, m load.Measurement) {
	t.Helper()
	if m.Spec.Workload.HTTP() {
		checkHTTP(t, m)
		return
	}
	up := m.Spec.Direction != load.Down
	down := m.Spec.Direction != load.Up || m.Latency != nil
	if up != (m.BytesUp > 0) || down != (m.BytesDown > 0) {
		t.Errorf("moved %d bytes up and %d down", m.BytesUp, m.BytesDown)
	}
	if m.Seconds <= 0 || m.ServerSeconds <= 0 || m.ClientCPU <= 0 || m.ServerCPU <= 0 {
		t.Errorf("took %g and %g s, %g and %g CPU-s", m.Seconds, m.ServerSeconds, m.ClientCPU, m.ServerCPU)
	}
	// A UDP answer that a busy machine delays for long counts as lost.
	if m.Errors != 0 && m.Spec.Workload != load.UDPRR {
		t.Errorf("%d errors", m.Errors)
	}
}

// checkConsistent compares the two sides over the whole run.
func checkConsistent(t *testing.T, m load.Measurement) {
	t.Helper()
	c, s := m.ClientTotals, m.ServerTotals
	if s.ReceivedBytes > c.SentBytes || c.ReceivedBytes > s.SentBytes {
		t.Errorf("received more than was sent: client %+v, server %+v", c, s)
	}
	if m.PacketsReceived > m.PacketsSent {
		t.Errorf("%d of %d packets arrived", m.PacketsReceived, m.PacketsSent)
	}
	if strings.HasPrefix(string(m.Spec.Workload), "tcp") &&
		(s.ReceivedBytes != c.SentBytes || c.ReceivedBytes != s.SentBytes) {
		t.Errorf("TCP lost bytes: client %+v, server %+v", c, s)
	}
	if m.Latency != nil && (m.Latency.Count != m.Transactions || m.Histogram.TotalCount() != int64(m.Transactions)) {
		t.Errorf("%d latencies for %d transactions", m.Latency.Count, m.Transactions)
	}
	if c.Transactions+c.Errors != s.Transactions && m.Spec.Workload != load.UDPRR || c.Transactions > s.Transactions {
		t.Errorf("client counts %d transactions, server %d", c.Transactions, s.Transactions)
	}
}

func checkMetrics(t *testing.T, m load.Measurement) {
	t.Helper()
	metrics := m.Metrics()
	if len(metrics) == 0 {
		t.Error("no metrics")
	}
	for name, v := range metrics {
		if v <= 0 && name != "loss" {
			t.Errorf("%s = %g", name, v)
		}
	}
}

func TestCountClosesTheWindow(t *testing.T) {
	p := newPair(t, newNetns(t))
	m := p.run(t, p.listen(t, v4), load.Spec{Workload: load.TCPCRR, Count: 200, Duration: time.Nanosecond})
	if m.Transactions != 200 {
		t.Errorf("%d transactions", m.Transactions)
	}
	checkConsistent(t, m)
}

func TestLiveFlowsDoNotDisturbStreams(t *testing.T) {
	p := newPair(t, newNetns(t))
	sources := []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")}
	for _, w := range []load.Workload{load.TCPRR, load.UDPPPS} {
		m := p.run(t, p.listen(t, v4), short(load.Spec{Workload: w, Flows: 65_000, FlowAddrs: sources}))
		checkMoved(t, m)
		checkConsistent(t, m)
	}
}

func TestHooksRunAtTheEdges(t *testing.T) {
	p := newPair(t, newNetns(t))
	target := p.listen(t, v4)
	var calls []string
	hook := func(name string) func() error {
		return func() error { calls = append(calls, name); return nil }
	}
	spec := short(load.Spec{Workload: load.TCPRR})
	_, err := load.Run(t.Context(), p.client, p.server, target, spec,
		load.Hooks{Begin: hook("begin"), End: hook("end")})
	if err != nil || fmt.Sprint(calls) != "[begin end]" {
		t.Fatalf("hooks %v, error %v", calls, err)
	}
	broken := errors.New("counter gone")
	_, err = load.Run(t.Context(), p.client, p.server, target, spec, load.Hooks{Begin: func() error { return broken }})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want the hook's error", err)
	}
	p.run(t, target, spec) // the children have recovered
}

func TestCancelEndsTheRun(t *testing.T) {
	p := newPair(t, newNetns(t))
	target := p.listen(t, v4)
	ctx, cancel := context.WithCancel(t.Context())
	spec := load.Spec{Workload: load.TCPBulk, Duration: time.Hour}
	_, err := load.Run(ctx, p.client, p.server, target, spec, load.Hooks{Begin: func() error { cancel(); return nil }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
}
