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

// TryLinks loads the programs for links, and attaches one to the loopback device of the
// calling thread's network namespace. Use a temporary namespace.
func TryLinks() error {
	p, err := try(forLinks, false)
	if err != nil {
		return err
	}
	err = p.AttachLink(Uplink, loopback, false)
	if err == nil {
		err = p.DetachLink(Uplink, loopback)
	}
	return errors.Join(err, p.Close())
}

// TryCgroups loads the programs for socket calls, and runs the iterator over an empty
// map. It attaches none, because every cgroup belongs to the host.
func TryCgroups() error {
	p, err := try(forSockets, false)
	if err != nil {
		return err
	}
	_, err = p.Incomplete()
	return errors.Join(err, p.Close())
}

// TryServices loads the programs for links and socket calls with support for services.
func TryServices() error {
	p, err := try(func(prog *ebpf.ProgramSpec) bool { return !forDrivers(prog) }, true)
	if err != nil {
		return err
	}
	return p.Close()
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
