package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fairlead/internal/kernel/bpf"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
)

// TestMapsOfAnotherSize adopts what a version left whose LRU maps have more or fewer entries, as on a host with many
// CPUs: all flows in them stay.
func TestMapsOfAnotherSize(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins, open := w.pinned(t)
	use := func() {
		t.Helper()
		h := open()
		for _, o := range (plan.Plan{plan.LocalClients{}, plan.Uplinks{}, boxIngress}) {
			if err := h.Set(o); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	use()
	maps, err := filepath.Glob(filepath.Join(pins, "*", "maps", "fl_*"))
	if err != nil {
		t.Fatal(err)
	}
	resized := map[string]uint32{}
	for i, pin := range maps {
		if size := resize(t, pin, i%2 == 0); size > 0 {
			resized[pin] = size
		}
	}
	if len(resized) < 5 {
		t.Fatalf("LRU maps: %v", resized)
	}
	use()
	for pin, size := range resized {
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		flow, err := m.LookupBytes(make([]byte, m.KeySize()))
		if err != nil || flow == nil || m.MaxEntries() != size {
			t.Errorf("%s: room for %d entries, want %d; its flow is in it: %t, %v", pin, m.MaxEntries(), size,
				flow != nil, err)
		}
		m.Close()
	}
}

// TestCountersOfAnotherVersion reads what a version left that counted in per-CPU arrays, as 0.9.0. The first reading of a
// new daemon decides whether connections to hosts outside stay. Only the counters begin again.
func TestCountersOfAnotherVersion(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins, open := w.pinned(t)
	outbound := plan.Outbound{Link: "box0", Router: "box0"}
	mapping := toBox("10.9.0.1", 80, "10.9.0.2")[0]
	h := open()
	for _, o := range (plan.Plan{plan.Uplinks{}, boxIngress, outbound}) {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(h.ebpf.ApplyEBPF([]plan.Op{{Object: mapping}}), h.Close()); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]uint32{bpf.FairleadMapFlTotals: 8192, bpf.FairleadMapFlRealTotals: 16384} {
		pin, err := filepath.Glob(filepath.Join(pins, "*", "maps", name))
		if err != nil || len(pin) != 1 {
			t.Fatalf("pins of %s: %v, %v", name, pin, err)
		}
		earlier, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 56,
			MaxEntries: size})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.Remove(pin[0]), earlier.Pin(pin[0]), earlier.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	h = open()
	found, err := datapath.Outbounds(h.ebpf)
	if err != nil || !slices.Equal(found, []plan.Outbound{outbound}) {
		t.Errorf("connections outside are translated for %v, %v, want %v", found, err, outbound)
	}
	counts, err := h.ebpf.MappingCounts()
	if n, ok := counts[mapping.Key()]; err != nil || !ok || n != 0 {
		t.Errorf("the counters are %v, %v, want 0 for %s", counts, err, mapping.Key())
	}
}

// resize replaces a pinned LRU map by one with twice or half as many entries, which has a flow. It returns the number
// of entries; 0 for another map, and for one of services that do not exist.
func resize(t *testing.T, pin string, more bool) uint32 {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Type() != ebpf.LRUHash || m.MaxEntries() == 1 {
		return 0
	}
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	size := m.MaxEntries() / 2
	if more {
		size = m.MaxEntries() * 2
	}
	other, err := ebpf.NewMap(&ebpf.MapSpec{Name: info.Name, Type: m.Type(), KeySize: m.KeySize(),
		ValueSize: m.ValueSize(), MaxEntries: size, Flags: m.Flags()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = other.Put(make([]byte, m.KeySize()), make([]byte, m.ValueSize()))
	if err == nil {
		err = os.Remove(pin)
	}
	if err == nil {
		err = other.Pin(pin)
	}
	if err != nil {
		t.Fatal(err)
	}
	return size
}
