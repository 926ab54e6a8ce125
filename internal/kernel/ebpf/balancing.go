package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// What virtual services need costs nobody who has none. Until the first one
// comes the programs are loaded without it, which halves what the verifier has to
// look at, and its maps have room for one entry each. Then programs and maps of
// full size come, and each program is put into the place of the one that is
// attached in one step; flows of publishes are in maps that stay. There is no way
// back but the next start, which finds no service.

// forServices are the maps that only services fill.
var forServices = []string{
	bpf.FairleadMapFlConnsTcp, bpf.FairleadMapFlConnsUdp, bpf.FairleadMapFlYoungConns,
	bpf.FairleadMapFlFrontends, bpf.FairleadMapFlServices, bpf.FairleadMapFlReals, bpf.FairleadMapFlLoads,
	bpf.FairleadMapFlRealTotals, bpf.FairleadMapFlAffinities,
}

// withoutServices leaves room for none.
func withoutServices(spec *ebpf.CollectionSpec) {
	for _, name := range forServices {
		spec.Maps[name].MaxEntries = 1
	}
}

// balanced reports whether an earlier process has left services.
func (p *Datapath) balanced() (bool, error) {
	if p.opt.Pins == "" {
		return false, nil
	}
	m, err := ebpf.LoadPinnedMap(p.mapPath(bpf.FairleadMapFlFrontends), nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pinned frontends of services: %w", err)
	}
	defer m.Close()
	var first []byte
	err = m.NextKey(nil, &first)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the pinned frontends of services: %w", err)
	}
	return true, nil
}

// Serve makes the plane take services, if it does not yet. The calling thread
// must be in the host's network namespace.
func (p *Datapath) Serve() error {
	if !p.balancing {
		if err := p.enlarge(); err != nil {
			return fmt.Errorf("make ready for services: %w", err)
		}
	}
	if p.renewed {
		return nil
	}
	err := p.renew()
	p.renewed = err == nil
	return err
}

// enlarge puts maps with room for services into the place of those without, and
// loads the programs anew. What is attached is renewed after it.
func (p *Datapath) enlarge() error {
	next := &Datapath{opt: p.opt, bindKey: p.bindKey, balancing: true, maps: maps.Clone(p.maps)}
	fresh, err := p.roomForServices()
	if err != nil {
		return err
	}
	maps.Copy(next.maps, fresh)
	if next.balancer, err = openBalancer(next.maps); err == nil {
		err = next.loadLike(p)
	}
	if err == nil {
		err = p.pinInstead(fresh)
	}
	if err != nil {
		closeAll(fresh)
		return errors.Join(err, next.closePrograms())
	}
	old := *p
	p.balancing, p.renewed = true, false
	p.maps, p.balancer, p.programs, p.bare = next.maps, next.balancer, next.programs, next.bare
	for name := range fresh {
		err = errors.Join(err, old.maps[name].Close())
	}
	return errors.Join(err, old.balancer.Close(), old.closePrograms())
}

// roomForServices makes the maps that services fill.
func (p *Datapath) roomForServices() (map[string]*ebpf.Map, error) {
	spec, err := Spec(p.opt.Cookie, ethernet, true)
	if err != nil {
		return nil, err
	}
	fresh := map[string]*ebpf.Map{}
	for _, name := range forServices {
		if fresh[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			delete(fresh, name)
			closeAll(fresh)
			return nil, fmt.Errorf("make map %s: %w", name, err)
		}
	}
	return fresh, nil
}

// loadLike loads the kinds of programs that the other plane has loaded.
func (p *Datapath) loadLike(other *Datapath) error {
	p.programs = map[string]*ebpf.Program{}
	for name := range other.programs {
		if _, err := p.program(name); err != nil {
			return err
		}
	}
	for name := range other.bare {
		if _, err := p.linkProgram(name, true); err != nil {
			return err
		}
	}
	return nil
}

// pinInstead pins maps in the place of those of their names.
func (p *Datapath) pinInstead(fresh map[string]*ebpf.Map) error {
	if p.opt.Pins == "" {
		return nil
	}
	for name, m := range fresh {
		path := p.mapPath(name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace pinned map: %w", err)
		}
		if err := m.Pin(path); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// renew gives whatever is attached this plane's programs.
func (p *Datapath) renew() error {
	for name, l := range p.attached {
		program, of, _ := strings.Cut(name, "-")
		if _, ok := p.types[program]; !ok || !living(l) {
			continue // LinksOf takes away what lives no more, and attach puts another in its place
		}
		ifindex, _ := strconv.Atoi(of)
		prog, err := p.linkProgram(program, onLinks(program) && isBare(ifindex))
		if err != nil {
			return err
		}
		if err := l.Update(prog); err != nil {
			return fmt.Errorf("renew eBPF program %s: %w", name, err)
		}
	}
	return p.renewFilters()
}
