package ebpf

import (
	"maps"
	"testing"
)

// TestGrowthIsLoadedBefore loads what the first virtual service needs before the service exists. Then nothing is loaded
// any more, also if the data path has loaded other programs meanwhile. What no service uses is released.
func TestGrowthIsLoadedBefore(t *testing.T) {
	p, err := Load(Options{Cookie: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	begin := func() *Growth {
		t.Helper()
		g, err := NewGrowth(p)
		if err == nil {
			err = g.Load()
		}
		if err == nil {
			_, err = g.next.program(Uplink)
		}
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	unused := begin()
	if !unused.Offer(p) {
		t.Fatal("the data path does not use the growth")
	}
	if err := unused.Withdraw(p); err != nil || p.growth != nil || unused.next.programs[Uplink].FD() >= 0 {
		t.Errorf("after Withdraw the growth has %+v, %v", unused.next.programs[Uplink], err)
	}
	g := begin()
	loaded := maps.Clone(g.next.programs)
	if !g.Offer(p) || len(loaded) == 0 {
		t.Fatalf("the growth has loaded %v", loaded)
	}
	if late := begin(); late.Offer(p) || late.Close() != nil {
		t.Error("the data path uses two growths")
	}
	if err := p.Serve(); err != nil {
		t.Fatal(err)
	}
	for name, want := range loaded {
		prog, err := p.program(name)
		if err != nil || prog != want || prog.FD() < 0 {
			t.Errorf("program %s was loaded again, %v", name, err)
		}
	}
	if g, err := NewGrowth(p); g != nil || err != nil {
		t.Errorf("a data path that has grown grows by %v, %v", g, err)
	}
	for name, m := range p.maps {
		if _, err := m.Info(); err != nil {
			t.Errorf("map %s after the growth: %v", name, err)
		}
	}
}
