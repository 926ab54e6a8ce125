package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// Hosts without virtual services do not pay for them. Until the first service exists,
// the programs are loaded without the code for services, which halves the verifier's
// work, and the maps for services have room for one entry each. When the first service
// is created, programs and maps of full size are loaded, and each attached program is
// replaced in one step. Flows of publishes are in maps that stay. The data path shrinks
// again only at the next start that finds no service.

// forServices are the maps that only services fill.
var forServices = []string{
	bpf.FairleadMapFlConnsTcp, bpf.FairleadMapFlConnsUdp, bpf.FairleadMapFlYoungConns,
	bpf.FairleadMapFlFrontends, bpf.FairleadMapFlServices, bpf.FairleadMapFlReals, bpf.FairleadMapFlLoads,
	bpf.FairleadMapFlRealTotals, bpf.FairleadMapFlAffinities,
}

// withoutServices reduces the maps for services to one entry each.
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
	m, err := ebpf.LoadPinnedMap(p.pins().mapOf(bpf.FairleadMapFlFrontends), nil)
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

// Serve prepares the data path for services, if it is not prepared yet. The calling
// thread must be in the host's network namespace.
func (p *Datapath) Serve() error {
	if !p.balancing {
		if err := p.enlarge(); err != nil {
			return fmt.Errorf("prepare the data path for services: %w", err)
		}
	}
	if p.renewed {
		return nil
	}
	err := p.renew()
	p.renewed = err == nil
	return err
}

// enlarge replaces the maps for services with maps of full size, and the programs. Attached programs are replaced
// afterwards (renew).
func (p *Datapath) enlarge() error {
	g := p.growth
	if p.growth = nil; g == nil {
		var err error
		if g, err = NewGrowth(p); err != nil {
			return err
		}
		if err := g.Load(); err != nil {
			return errors.Join(err, g.Close())
		}
	}
	// Other programs can have been loaded since the growth began.
	err := g.next.loadAlso(slices.Collect(maps.Keys(p.programs)), slices.Collect(maps.Keys(p.bare)))
	grown := maps.Clone(p.maps)
	maps.Copy(grown, g.fresh)
	var balancer *Balancer
	if err == nil {
		balancer, err = openBalancer(grown)
	}
	if err == nil {
		err = p.pinInstead(g.fresh)
	}
	if err != nil {
		return errors.Join(err, g.Close())
	}
	old := *p
	p.balancing, p.renewed = true, false
	p.maps, p.balancer, p.programs, p.bare = grown, balancer, g.next.programs, g.next.bare
	for name, m := range g.next.maps {
		if g.fresh[name] == nil {
			err = errors.Join(err, m.Close())
		} else {
			err = errors.Join(err, old.maps[name].Close())
		}
	}
	return errors.Join(err, old.balancer.Close(), old.closePrograms())
}

// roomForServices creates the maps for services in full size.
func roomForServices(cookie uint64) (map[string]*ebpf.Map, error) {
	spec, err := Spec(cookie, ethernet, true)
	if err != nil {
		return nil, err
	}
	fresh := map[string]*ebpf.Map{}
	for _, name := range forServices {
		if fresh[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			delete(fresh, name)
			closeAll(fresh)
			return nil, fmt.Errorf("create map %s: %w", name, err)
		}
	}
	return fresh, nil
}

// pinInstead pins maps in place of the pinned ones with the same names.
func (p *Datapath) pinInstead(fresh map[string]*ebpf.Map) error {
	if p.opt.Pins == "" {
		return nil
	}
	for name, m := range fresh {
		path := p.pins().mapOf(name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace pinned map: %w", err)
		}
		if err := m.Pin(path); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// renew replaces all attached programs with those of this data path.
func (p *Datapath) renew() error {
	for name, l := range p.attached.byName {
		program, of, _ := strings.Cut(name, "-")
		if _, ok := p.types[program]; !ok || !living(l) {
			continue // LinksOf deletes dead links, and attach replaces them
		}
		ifindex, _ := strconv.Atoi(of)
		prog, err := p.linkProgram(program, onLinks(program) && isBareAt(ifindex))
		if err != nil {
			return err
		}
		if err := l.Update(prog); err != nil {
			return fmt.Errorf("renew eBPF program %s: %w", name, err)
		}
	}
	return p.renewFilters()
}
