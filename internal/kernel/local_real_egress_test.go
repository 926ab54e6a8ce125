package kernel

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// TestLocalRealEgressOutlivesItsProcess checks that clients of a virtual address
// get replies from that address if the real server is the host itself. This still
// works after the process has ended and after the next one has started. New links
// get the same programs.
func TestLocalRealEgressOutlivesItsProcess(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	tun := w.tunnel(t)
	w.echo(t, "192.0.2.1:5300")
	_, open := w.pinned(t)
	dns := plan.EBPFService{Balanced: plan.Balanced{Service: "dns", Proto: model.UDP, Scheduler: model.RoundRobin,
		Forward:   model.ForwardNAT,
		Frontends: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.80:53")},
		Backends:  []plan.Backend{{At: netip.MustParseAddrPort("192.0.2.1:5300"), Weight: 1, Local: true}},
		Ring:      []uint16{0}}}
	h := open()
	if err := h.Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	if err := h.ebpf.ApplyEBPF([]plan.Op{{Object: dns}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(plan.LocalRealEgress{}); err != nil {
		t.Fatal(err)
	}
	through(t, tun, "203.0.113.80:53", "192.0.2.1:5300")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	through(t, tun, "203.0.113.80:53", "192.0.2.1:5300")
	h = open()
	hasService(t, h, dns, true)
	localRealEgress(t, h, true)
	w.run(t, "ip", "link", "add", "new0", "type", "veth", "peer", "name", "new1")
	if err := h.Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	localRealEgress(t, h, true)
	through(t, tun, "203.0.113.80:53", "192.0.2.1:5300")
	if err := h.Del(plan.LocalRealEgress{}); err != nil {
		t.Fatal(err)
	}
	localRealEgress(t, h, false)
	if err := h.Del(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
}

// localRealEgress fails the test unless the program is attached on every link, or
// is not if want is false.
func localRealEgress(t *testing.T, h *Host, want bool) {
	t.Helper()
	found, err := h.ObservePart(plan.Plan{plan.LocalRealEgress{}})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Contains(found, plan.Object(plan.LocalRealEgress{})); got != want {
		t.Errorf("local real egress is observed: %v, want %v", got, want)
	}
}

// echo answers datagrams on the host with the address that they were sent to.
func (w *localWorld) echo(t *testing.T, at string) {
	t.Helper()
	var conn net.PacketConn
	if err := w.ns.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for buf := make([]byte, 64); ; {
			_, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(at), from) // on an error the client's timeout fails the test
		}
	}()
}
