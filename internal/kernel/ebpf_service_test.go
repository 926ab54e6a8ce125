package kernel

import (
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ebpfWeb is a service on a port of an address that no link has, whose real
// server is the sandbox, twice.
func ebpfWeb(s model.Scheduler) plan.EBPFService {
	b := plan.Balanced{Service: "web", Proto: model.TCP, Scheduler: s, Forward: model.ForwardNAT, Persistence: 60e9,
		Frontends: plan.PackFrontends([]model.Frontend{{Proto: model.TCP, At: netip.MustParseAddrPort("203.0.113.80:80")}, {Proto: model.TCP, At: netip.MustParseAddrPort("203.0.113.80:81")}}),
		Backends: plan.PackBackends([]plan.Backend{
			{At: netip.MustParseAddrPort("10.9.0.2:8080"), Weight: 3, Link: "box0", Gateway: netip.MustParseAddr("10.9.0.1")},
			{At: netip.MustParseAddrPort("10.9.0.2:8081"), Weight: 1, Draining: true, Link: "box0", Gateway: netip.MustParseAddr("10.9.0.1")},
			{At: netip.MustParseAddrPort("203.0.113.9:0"), Weight: 0, Masquerade: true},
		})}
	if s == model.MaglevHashing {
		b.Ring = plan.PackRing(make([]uint16, 1021))
	}
	return plan.EBPFService{Balanced: b}
}

// TestServicesOutliveTheirProcess reads what another process has set, for each
// scheduler, and mends what somebody has spoiled.
func TestServicesOutliveTheirProcess(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins, open := w.pinned(t)
	h := open()
	for _, s := range []model.Scheduler{model.MaglevHashing, model.RoundRobin, model.WeightedRoundRobin, model.WeightedLeastConnection} {
		want := ebpfWeb(s)
		if err := h.ApplyEBPF([]plan.Op{{Object: want}}); err != nil {
			t.Fatal(err)
		}
		if err := h.Set(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open()
		holds(t, h, want, true)
		c := dialer(t, w.ns, unix.SOCK_STREAM, "10.9.0.1:80")
		if err := c.connect("203.0.113.80:80"); err != nil {
			t.Fatal(err)
		}
		if said, _ := c.answer(t); said != "10.9.0.2:8080" {
			t.Errorf("%s: reached %q", s, said)
		}
	}
	spoil(t, pins)
	want := ebpfWeb(model.WeightedLeastConnection)
	holds(t, h, want, false)
	if _, intact := h.checkBPF(); intact {
		t.Error("a look does not find what is spoiled")
	}
	if err := h.ApplyEBPF([]plan.Op{{Object: want}}); err != nil {
		t.Fatal(err)
	}
	holds(t, h, want, true)
	if err := h.ApplyEBPF([]plan.Op{{Object: want, Del: true}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(pins, "*", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("pins are left: %v, %v", left, err)
	}
}

// holds fails the test unless the host has the service, or has it not.
func holds(t *testing.T, h *Host, want plan.EBPFService, is bool) {
	t.Helper()
	whole, err := h.Observe(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	part, err := h.ObservePart(plan.Plan{want})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(whole, plan.Object(want)) != is || slices.Contains(part, plan.Object(want)) != is {
		t.Errorf("it should hold the service: %v; it holds %v and %v", is, whole, part)
	}
}

// spoil takes a frontend away behind our back.
func spoil(t *testing.T, pins string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pins, "*", "maps", "frontends"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the pins are %v, %v", found, err)
	}
	m, err := ebpf.LoadPinnedMap(found[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	key := make([]byte, m.KeySize())
	if err := m.NextKey(nil, &key); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(key); err != nil {
		t.Fatal(err)
	}
}
