package ebpf

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// tryEntries is the size of the maps in tests of support; full-size maps cost memory and
// time.
const tryEntries = 16

// loopback is the index of the loopback device, the first device of every namespace.
const loopback = 1

// TryLinks loads the programs for links, and attaches one as UseOnLinks does.
func TryLinks() error {
	p, err := try(forLinks, false)
	if err != nil {
		return err
	}
	return errors.Join(p.UseOnLinks(), p.Close())
}

// UseOnLinks attaches a program to the loopback device of the calling thread's network namespace, and detaches it. Use
// a temporary namespace. The programs for links are loaded if they are not yet.
func (p *Datapath) UseOnLinks() error {
	prog, err := p.program(Sandbox)
	if err != nil {
		return err
	}
	alone := &Datapath{maps: p.maps, programs: map[string]*ebpf.Program{Sandbox: prog},
		attached: links{byName: map[string]link.Link{}}}
	if err := alone.AttachLink(Sandbox, loopback, false); err != nil {
		return err
	}
	return alone.DetachLink(Sandbox, loopback)
}

// TryCgroups loads the programs for socket calls, also those of workloads, and uses them as UseInCgroups does.
func TryCgroups() error {
	p, err := try(func(prog *ebpf.ProgramSpec) bool { return forSockets(prog) || forWorkloads(prog) }, false)
	if err != nil {
		return err
	}
	return errors.Join(p.UseInCgroups(), p.Close())
}

// UseInCgroups runs the iterator over the sockets. It attaches no program, because every cgroup belongs to the host.
// The programs for socket calls are loaded if they are not yet.
func (p *Datapath) UseInCgroups() error {
	_, err := p.Incomplete()
	return err
}

// TryServices loads the programs for links and socket calls with support for services, and uses them as UseOnLinks and
// UseInCgroups do.
func TryServices() error {
	p, err := try(func(prog *ebpf.ProgramSpec) bool { return !forDrivers(prog) }, true)
	if err != nil {
		return err
	}
	return errors.Join(p.UseOnLinks(), p.UseInCgroups(), p.Close())
}

// try loads programs of some kinds with small maps.
func try(wanted func(*ebpf.ProgramSpec) bool, balancing bool) (*Datapath, error) {
	spec, err := Spec(0, ethernet, balancing)
	if err != nil {
		return nil, err
	}
	keep(spec, wanted)
	for _, m := range spec.Maps {
		m.MaxEntries = min(m.MaxEntries, tryEntries)
	}
	c, err := collection(spec, nil)
	if err != nil {
		return nil, err
	}
	return &Datapath{programs: c.Programs, maps: c.Maps, attached: links{byName: map[string]link.Link{}}}, nil
}
