package kernel

import (
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// leastLoaded is ebpfWeb with the least-connection scheduler and two equal real
// servers.
func leastLoaded(proto model.Proto) plan.EBPFService {
	s := ebpfWeb(model.LeastConnection)
	s.Proto, s.Persistence = proto, 0
	s.Frontends = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.80:80")}
	var both []plan.Backend
	for _, at := range []string{"10.9.0.2:8080", "10.9.0.2:8081"} {
		both = append(both, plan.Backend{At: netip.MustParseAddrPort(at), Weight: 1, Link: "box0",
			Gateway: netip.MustParseAddr("10.9.0.1")})
	}
	s.Backends, s.Ring = both, []uint16{0, 1}
	return s
}

// TestLocalSocketsOfServices runs tests of services whose clients are the host's processes. Each test deletes its
// services.
func TestLocalSocketsOfServices(t *testing.T) {
	newLocalWorld(t).share(t, []sharing{
		{"SilentFlowsAreNoLoad", testSilentFlowsAreNoLoad}, // first: its real servers have the slots 1 and 2
		{"LeastConnectionsCountsLocalSockets", testLeastConnectionsCountsLocalSockets},
		{"MovedLocalSocketsCountAtNewServer", testMovedLocalSocketsCountAtNewServer},
	})
}

// testLeastConnectionsCountsLocalSockets checks that sockets of the host's
// processes count from connect or the first datagram until the last close. No
// program sees their packets.
func testLeastConnectionsCountsLocalSockets(t *testing.T, w *localWorld) {
	for proto, kind := range map[model.Proto]int{model.TCP: unix.SOCK_STREAM, model.UDP: unix.SOCK_DGRAM} {
		s := leastLoaded(proto)
		w.service(t, plan.Op{Object: s})
		open := map[string][]int{}
		dial := func() string {
			t.Helper()
			c := client{family: unix.AF_INET, fd: w.socket(t, kind)}
			said := c.call(t, kind, "203.0.113.80:80")
			open[said] = append(open[said], c.fd)
			return said
		}
		for range 4 {
			if one, other := dial(), dial(); one == other {
				t.Errorf("%s: %s got both of two flows", proto, one)
			}
		}
		w.counts(t, proto, 4, 4)
		for _, fd := range open["10.9.0.2:8080"] {
			unix.Close(fd)
		}
		w.counts(t, proto, 0, 4)
		for range 4 {
			if who := dial(); who != "10.9.0.2:8080" {
				t.Errorf("%s: %s got the next flow, although it has more", proto, who)
			}
		}
		for _, fd := range append(open["10.9.0.2:8080"][4:], open["10.9.0.2:8081"]...) {
			unix.Close(fd)
		}
		w.counts(t, proto, 0, 0)
		w.service(t, plan.Op{Object: s, Del: true})
	}
}

// testSilentFlowsAreNoLoad checks that the daemon's checks correct the load of real
// servers whose flows have ended without a packet.
func testSilentFlowsAreNoLoad(t *testing.T, w *localWorld) {
	s := leastLoaded(model.UDP)
	w.service(t, plan.Op{Object: s})
	defer w.service(t, plan.Op{Object: s, Del: true})
	loads := w.ebpf.Loaded().Map(bpf.FairleadMapFlLoads)
	var l bpf.FairleadLoad
	for slot := range uint32(2) {
		if err := loads.Put(slot+1, bpf.FairleadLoad{Active: 100}); err != nil {
			t.Fatal(err)
		}
	}
	w.ebpf.Check()
	for slot := range uint32(2) {
		if err := loads.Lookup(slot+1, &l); err != nil || l.Active != 0 {
			t.Errorf("real server %d has %d flows (%v), want none", slot+1, l.Active, err)
		}
	}
}

// testMovedLocalSocketsCountAtNewServer checks that a socket whose service moves it
// to another real server counts there.
func testMovedLocalSocketsCountAtNewServer(t *testing.T, w *localWorld) {
	s := leastLoaded(model.UDP)
	w.service(t, plan.Op{Object: s})
	defer w.service(t, plan.Op{Object: s, Del: true})
	c := client{family: unix.AF_INET, fd: w.socket(t, unix.SOCK_DGRAM)}
	defer unix.Close(c.fd)
	first := c.call(t, unix.SOCK_DGRAM, "203.0.113.80:80")
	without := s
	without.Backends, without.Ring = s.Backends[:1], []uint16{0}
	if first == "10.9.0.2:8080" {
		without.Backends = s.Backends[1:]
	}
	for _, op := range []plan.Op{{Object: without, Old: s}, {Object: s, Old: without}} {
		w.service(t, op)
		if now := c.call(t, unix.SOCK_DGRAM, "203.0.113.80:80"); now == first {
			t.Errorf("%s answers although it was removed", now)
		}
	}
	if first == "10.9.0.2:8080" {
		w.counts(t, model.UDP, 0, 1)
	} else {
		w.counts(t, model.UDP, 1, 0)
	}
}

// service adds, changes or deletes a service.
func (w *localWorld) service(t *testing.T, op plan.Op) {
	t.Helper()
	if err := w.ebpf.ApplyEBPF([]plan.Op{op}); err != nil {
		t.Fatal(err)
	}
}

// socket opens a socket in the host's namespace.
func (w *localWorld) socket(t *testing.T, kind int) (fd int) {
	t.Helper()
	err := w.ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// call sends a request to a service, over a connection or as a datagram, and
// returns which server answers.
func (c client) call(t *testing.T, kind int, at string) string {
	t.Helper()
	call := c.connect
	if kind == unix.SOCK_DGRAM {
		call = c.sendTo
	}
	if err := call(at); err != nil {
		t.Fatal(err)
	}
	said, _ := c.answer(t)
	return said
}

// counts fails the test unless the real servers have these numbers of active flows.
func (w *localWorld) counts(t *testing.T, proto model.Proto, want ...uint64) {
	t.Helper()
	all, err := w.ebpf.BalancerCounts()
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range []string{"10.9.0.2:8080", "10.9.0.2:8081"} {
		if got := all["web"][netip.MustParseAddrPort(at)].Active; got != want[i] {
			t.Errorf("%s: %s has %d flows, want %d", proto, at, got, want[i])
		}
	}
}
