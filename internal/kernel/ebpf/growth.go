package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
)

// Growth has what a data path needs for its first virtual service: maps of full size, and programs with the code for
// services. The kernel verifies these for a second and more. So they can be loaded before, while others use the data
// path.
type Growth struct {
	// next shares the maps of the data path, but for those in fresh. Its other maps are duplicates.
	next  *Datapath
	fresh map[string]*ebpf.Map
	// loaded and bare are the programs that the data path has loaded.
	loaded, bare []string
}

// NewGrowth begins the growth of a data path, which the caller has locked. It is nil if the data path has grown.
func NewGrowth(p *Datapath) (*Growth, error) {
	if p.balancing {
		return nil, nil
	}
	g := &Growth{next: &Datapath{opt: p.opt, bindKey: p.bindKey, balancing: true, maps: map[string]*ebpf.Map{},
		programs: map[string]*ebpf.Program{}}, loaded: slices.Collect(maps.Keys(p.programs)),
		bare: slices.Collect(maps.Keys(p.bare))}
	for name, m := range p.maps {
		own, err := m.Clone()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("duplicate map %s: %w", name, err), g.Close())
		}
		g.next.maps[name] = own
	}
	return g, nil
}

// Load loads the maps, and the programs that the data path has loaded. It needs no lock of the data path.
func (g *Growth) Load() error {
	fresh, err := roomForServices(g.next.opt.Cookie)
	if err != nil {
		return err
	}
	g.fresh = fresh
	for name, m := range fresh {
		g.next.maps[name].Close()
		g.next.maps[name] = m
	}
	return g.next.loadAlso(g.loaded, g.bare)
}

// UseOnLinks is Datapath.UseOnLinks for what Load has loaded. It needs no lock of the data path.
func (g *Growth) UseOnLinks() error { return g.next.UseOnLinks() }

// UseInCgroups is Datapath.UseInCgroups for what Load has loaded. It needs no lock of the data path.
func (g *Growth) UseInCgroups() error { return g.next.UseInCgroups() }

// Close releases what the growth has loaded and no data path has taken.
func (g *Growth) Close() error {
	closeAll(g.next.maps)
	return g.next.closePrograms()
}

// Offer makes the data path, for which the growth was begun, use it when the first virtual service is created. It returns
// false if the data path has grown, or will use another growth.
func (g *Growth) Offer(p *Datapath) bool {
	if p.balancing || p.growth != nil {
		return false
	}
	p.growth = g
	return true
}

// Withdraw closes the growth unless the data path has used it.
func (g *Growth) Withdraw(p *Datapath) error {
	if p.growth != g {
		return nil
	}
	p.growth = nil
	return g.Close()
}

// loadAlso loads the kinds of the named programs.
func (p *Datapath) loadAlso(names, bare []string) error {
	for _, name := range names {
		if _, err := p.program(name); err != nil {
			return err
		}
	}
	for _, name := range bare {
		if _, err := p.linkProgram(name, true); err != nil {
			return err
		}
	}
	return nil
}
