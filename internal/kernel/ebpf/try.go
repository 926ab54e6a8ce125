package ebpf

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// tryEntries is the size of the maps that programs are tried with: the real
// ones take memory and time.
const tryEntries = 16

// loopback is the index of the loopback device, which every namespace has as
// its first.
const loopback = 1

// TryLinks loads the programs for links, and attaches one to the loopback
// device of the calling thread's network namespace, which should be a
// throwaway.
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

// TryCgroups loads the programs for socket calls, and reads what none can have
// dialled. It attaches none: there is no cgroup that is not the host's.
func TryCgroups() error {
	p, err := try(forSockets, false)
	if err != nil {
		return err
	}
	_, err = p.Incomplete()
	return errors.Join(err, p.Close())
}

// TryServices loads the programs for links and socket calls with what services
// need.
func TryServices() error {
	p, err := try(func(prog *ebpf.ProgramSpec) bool { return !forDrivers(prog) }, true)
	if err != nil {
		return err
	}
	return p.Close()
}

// try loads the programs of some kinds around small maps.
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
	return &Datapath{programs: c.Programs, maps: c.Maps, attached: map[string]link.Link{}}, nil
}
