package ebpf

import (
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// BenchmarkLoad measures the time that the kernel needs to verify the programs of
// each kind, with and without support for virtual services.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		name, program string
		services      bool
	}{
		{"links", Uplink, false}, {"links/services", Uplink, true},
		{"sockets", bpf.FairleadProgFlConnect4, false}, {"sockets/services", bpf.FairleadProgFlConnect4, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				p, err := Load(Options{Cookie: 1})
				if err == nil && c.services {
					err = p.Serve()
				}
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				if _, err := p.program(c.program); err != nil {
					b.Fatal(err)
				}
				took += time.Since(start)
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/load")
		})
	}
}

// TestMapsForManyCPUs checks that LRU maps have room for the free entries that each CPU
// takes for itself, that few CPUs do not change their size, and that each CPU has its counters.
func TestMapsForManyCPUs(t *testing.T) {
	small, err := loadSpec(1)
	if err != nil {
		t.Fatal(err)
	}
	large, err := loadSpec(512)
	if err != nil {
		t.Fatal(err)
	}
	declared, err := bpf.LoadFairlead()
	if err != nil {
		t.Fatal(err)
	}
	lru := 0
	for name, m := range declared.Maps {
		want := m.MaxEntries
		if m.Type == ebpf.LRUHash {
			lru++
			want = max(want, 512*2*128)
		}
		if name == bpf.FairleadMapFlTotals || name == bpf.FairleadMapFlRealTotals {
			want *= 512
		}
		if small.Maps[name].MaxEntries != m.MaxEntries || large.Maps[name].MaxEntries != want {
			t.Errorf("%s has %d entries for one CPU and %d for 512, want %d and %d", name,
				small.Maps[name].MaxEntries, large.Maps[name].MaxEntries, m.MaxEntries, want)
		}
	}
	if lru == 0 {
		t.Error("no map is an LRU map")
	}
}

// TestServicesOfIncompleteMaps reads services while another process enlarges the maps for the first one: some still
// have one entry.
func TestServicesOfIncompleteMaps(t *testing.T) {
	spec, err := loadSpec(1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.FairleadMapFlFrontends])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := ReadOnly{maps: map[string]*ebpf.Map{bpf.FairleadMapFlFrontends: m}}
	if all, err := s.Services(); len(all) != 0 || err != nil {
		t.Errorf("the services are %v, %v, want none", all, err)
	}
}
