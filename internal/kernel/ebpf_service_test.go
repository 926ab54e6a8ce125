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

// ebpfWeb is a service on an address that no link has. Both of its local real
// servers are the sandbox.
func ebpfWeb(s model.Scheduler) plan.EBPFService {
	b := plan.Balanced{Service: "web", Proto: model.TCP, Scheduler: s, Forward: model.ForwardNAT, Persistence: 60e9,
		Frontends: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.80:80"),
			netip.MustParseAddrPort("203.0.113.80:81")},
		Backends: []plan.Backend{
			{At: netip.MustParseAddrPort("10.9.0.2:8080"), Weight: 3, Link: "box0",
				Gateway: netip.MustParseAddr("10.9.0.1")},
			{At: netip.MustParseAddrPort("10.9.0.2:8081"), Weight: 1, Draining: true, Link: "box0",
				Gateway: netip.MustParseAddr("10.9.0.1")},
			{At: netip.MustParseAddrPort("203.0.113.9:0"), Weight: 0, Masquerade: true},
		}}
	b.Ring = []uint16{0}
	if s == model.MaglevHashing {
		b.Ring = make([]uint16, 1021)
	}
	return plan.EBPFService{Balanced: b}
}

// TestServicesOutliveTheirProcess reads the services that another process has set,
// for each scheduler, and repairs a damaged one.
func TestServicesOutliveTheirProcess(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins, open := w.pinned(t)
	h := open()
	for _, s := range []model.Scheduler{model.MaglevHashing, model.RoundRobin, model.WeightedRoundRobin,
		model.WeightedLeastConnection} {
		want := ebpfWeb(s)
		if err := h.ebpf.ApplyEBPF([]plan.Op{{Object: want}}); err != nil {
			t.Fatal(err)
		}
		if err := h.Set(plan.LocalClients{}); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = open()
		hasService(t, h, want, true)
		c := dialer(t, w.ns, unix.SOCK_STREAM, "10.9.0.1:80")
		if err := c.connect("203.0.113.80:80"); err != nil {
			t.Fatal(err)
		}
		if said, _ := c.answer(t); said != "10.9.0.2:8080" {
			t.Errorf("%s: reached %q", s, said)
		}
	}
	damage(t, pins)
	want := ebpfWeb(model.WeightedLeastConnection)
	hasService(t, h, want, false)
	if _, intact := h.ebpf.Check(); intact {
		t.Error("checkBPF does not report the damaged service")
	}
	if err := h.ebpf.ApplyEBPF([]plan.Op{{Object: want}}); err != nil {
		t.Fatal(err)
	}
	hasService(t, h, want, true)
	if err := h.ebpf.ApplyEBPF([]plan.Op{{Object: want, Del: true}}); err != nil {
		t.Fatal(err)
	}
	if err := h.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(pins, "*", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("pins are left: %v, %v", left, err)
	}
}

// hasService fails the test unless the host has the service, or does not have it if
// want is false.
func hasService(t *testing.T, h *Host, service plan.EBPFService, want bool) {
	t.Helper()
	whole, err := h.Observe(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	part, err := h.ObservePart(plan.Plan{service})
	if err != nil {
		t.Fatal(err)
	}
	isService := func(o plan.Object) bool { return plan.Equal(o, service) }
	if slices.ContainsFunc(whole, isService) != want || slices.ContainsFunc(part, isService) != want {
		t.Errorf("has the service: want %v; Observe returns %v, ObservePart %v", want, whole, part)
	}
}

// damage removes a frontend from the pinned map.
func damage(t *testing.T, pins string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pins, "*", "maps", "fl_frontends"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found pins %v, %v", found, err)
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
