package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
)

// forLinks reports whether a program is for the ingress of links. The kernel needs a
// large part of a second to verify these programs, so they are loaded only if one is
// attached.
func forLinks(prog *ebpf.ProgramSpec) bool {
	return prog.Type == ebpf.SchedCLS && !forEgress(prog)
}

// forEgress reports whether a program is for the egress of links, which few hosts need.
func forEgress(prog *ebpf.ProgramSpec) bool { return atEgress(prog.Name) }

// only returns which programs are loaded with one that no other needs.
func only(name string) func(*ebpf.ProgramSpec) bool {
	return func(prog *ebpf.ProgramSpec) bool { return prog.Name == name }
}

// forDrivers reports whether a program runs in drivers (XDP).
func forDrivers(prog *ebpf.ProgramSpec) bool { return prog.Type == ebpf.XDP }

// forWorkloads reports whether a program is for socket calls in the cgroups of workloads, which few hosts have.
func forWorkloads(prog *ebpf.ProgramSpec) bool { return ofWorkloads(prog.Name) }

// ofWorkloads is forWorkloads for the name of a program.
func ofWorkloads(name string) bool { return strings.HasPrefix(name, "fl_wl_") }

// forSockets reports whether a program is for socket calls of the host's processes, or lists their sockets.
func forSockets(prog *ebpf.ProgramSpec) bool {
	return !forLinks(prog) && !forEgress(prog) && !forDrivers(prog) && !forWorkloads(prog)
}

// program returns a program for socket calls or drivers, or one for links with Ethernet
// headers. The first of a kind loads all programs of that kind.
func (p *Datapath) program(name string) (*ebpf.Program, error) {
	if prog, ok := p.programs[name]; ok {
		return prog, nil
	}
	loaded, err := p.loadPrograms(ethernet, kindOf(name))
	maps.Copy(p.programs, loaded)
	return p.programs[name], err
}

// kindOf returns which programs are loaded together with the named one.
func kindOf(name string) func(*ebpf.ProgramSpec) bool {
	switch {
	case atEgress(name):
		return only(name)
	case name == XDP:
		return forDrivers
	case onLinks(name):
		return forLinks
	case ofWorkloads(name):
		return forWorkloads
	}
	return forSockets
}

// linkProgram returns the program for links with or without headers.
func (p *Datapath) linkProgram(name string, bare bool) (*ebpf.Program, error) {
	if !bare {
		return p.program(name)
	}
	if prog, ok := p.bare[name]; ok {
		return prog, nil
	}
	loaded, err := p.loadPrograms(0, kindOf(name))
	if p.bare == nil {
		p.bare = map[string]*ebpf.Program{}
	}
	maps.Copy(p.bare, loaded)
	return p.bare[name], err
}

// loadPrograms loads the programs of a kind around the data path's maps, for links with
// headers of that length.
func (p *Datapath) loadPrograms(header uint32, wanted func(*ebpf.ProgramSpec) bool) (map[string]*ebpf.Program, error) {
	spec, err := Spec(p.opt.Cookie, header, p.balancing)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[bpf.FairleadVarBindKey].Set(p.bindKey); err != nil {
		return nil, fmt.Errorf("set %s: %w", bpf.FairleadVarBindKey, err)
	}
	if err := errors.Join(setAliases(spec, p.opt.local), setOutbound(spec)); err != nil {
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

// keep removes all programs from the specification that are not wanted.
func keep(spec *ebpf.CollectionSpec, wanted func(*ebpf.ProgramSpec) bool) {
	maps.DeleteFunc(spec.Programs, func(_ string, prog *ebpf.ProgramSpec) bool { return !wanted(prog) })
}

// collection loads the specification with the existing maps. It changes the specification.
func collection(spec *ebpf.CollectionSpec, there map[string]*ebpf.Map) (*ebpf.Collection, error) {
	for name, m := range there {
		spec.Maps[name] = ofSize(spec.Maps[name], m)
	}
	c, err := bpf.Load(spec, there)
	if err != nil {
		return nil, explain(err)
	}
	return c, nil
}
