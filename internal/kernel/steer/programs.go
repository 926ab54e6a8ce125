package steer

import (
	"maps"

	"github.com/cilium/ebpf"
)

// forLinks tells the programs for links from those for socket calls. The
// kernel takes much of a second to verify the former, so that whoever attaches
// none does not load them.
func forLinks(t ebpf.ProgramType) bool { return t == ebpf.SchedCLS }

// forDrivers are those that drivers run.
func forDrivers(t ebpf.ProgramType) bool { return t == ebpf.XDP }

// forSockets are the others.
func forSockets(t ebpf.ProgramType) bool { return !forLinks(t) && !forDrivers(t) }

// program returns a program for socket calls or drivers, or one for links with
// Ethernet headers. The first of a kind loads all of that kind.
func (p *Plane) program(name string) (*ebpf.Program, error) {
	if prog, ok := p.programs[name]; ok {
		return prog, nil
	}
	kind := forSockets
	switch {
	case onLinks(name):
		kind = forLinks
	case name == Fast:
		kind = forDrivers
	}
	loaded, err := p.loadPrograms(ethernet, kind)
	maps.Copy(p.programs, loaded)
	return p.programs[name], err
}

// linkProgram returns the program for links with or without headers.
func (p *Plane) linkProgram(name string, bare bool) (*ebpf.Program, error) {
	if !bare {
		return p.program(name)
	}
	if p.bare == nil {
		var err error
		if p.bare, err = p.loadPrograms(0, forLinks); err != nil {
			return nil, err
		}
	}
	return p.bare[name], nil
}

// loadPrograms loads the programs of a kind around the plane's maps, for links
// with headers of that length.
func (p *Plane) loadPrograms(header uint32, wanted func(ebpf.ProgramType) bool) (map[string]*ebpf.Program, error) {
	spec, err := Spec(p.opt.Cookie, header, p.balancing)
	if err != nil {
		return nil, err
	}
	keep(spec, wanted)
	shares := map[string]*ebpf.Map{}
	for name, m := range p.maps {
		if shared(name) {
			shares[name] = m
		}
	}
	c, err := collection(spec, shares)
	if err != nil {
		return nil, err
	}
	closeAll(c.Maps)
	return c.Programs, nil
}

// keep takes the other programs out of the specification.
func keep(spec *ebpf.CollectionSpec, wanted func(ebpf.ProgramType) bool) {
	maps.DeleteFunc(spec.Programs, func(_ string, prog *ebpf.ProgramSpec) bool { return !wanted(prog.Type) })
}

// collection loads what is specified around the maps that are there.
func collection(spec *ebpf.CollectionSpec, there map[string]*ebpf.Map) (*ebpf.Collection, error) {
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: there})
	if err != nil {
		return nil, explain(err)
	}
	return c, nil
}
