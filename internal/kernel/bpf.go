package kernel

import (
	"errors"
	"fmt"
	"path/filepath"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BPFDir is where a host's eBPF programs are pinned: a bpffs, which systemd
// mounts.
const BPFDir = "/sys/fs/bpf/" + plan.Mark

// datapath returns the eBPF data plane, loading it or adopting the one that an
// earlier process has left.
func (h *Host) datapath() (*ebpf.Datapath, error) {
	if h.ebpfState != nil {
		return h.ebpfState, nil
	}
	cookie, err := h.cookie()
	if err != nil {
		return nil, err
	}
	opt := ebpf.Options{Cookie: cookie, LooseSources: h.opt.LooseSources}
	if h.opt.Pins != "" {
		opt.Pins = h.pins(cookie)
		if err := ebpf.Sweep(h.opt.Pins); err != nil {
			return nil, err
		}
	}
	unlock, err := h.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if h.ebpfState, err = h.wake(opt); err != nil || h.ebpfState != nil {
		return h.ebpfState, err
	}
	err = h.ns.Do(func() (err error) {
		h.ebpfState, err = ebpf.Load(opt)
		return err
	})
	return h.ebpfState, err
}

// lock keeps other processes of ours from loading a plane of the same host,
// so that all of them find the map that the first has made. The namespace
// itself is what they lock.
func (h *Host) lock() (unlock func() error, err error) {
	ns, err := OpenNetns(h.ns.Path())
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(ns.File().Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the network namespace: %w", err), ns.Close())
	}
	return ns.Close, nil
}

// pins is the directory of a host's pins: its namespace's cookie lives as
// long as the pins may, until the next boot.
func (h *Host) pins(cookie uint64) string {
	return filepath.Join(h.opt.Pins, fmt.Sprintf("%x", cookie))
}

// datapathIfAny returns the plane if one is loaded or pinned, else nil.
func (h *Host) datapathIfAny() (*ebpf.Datapath, error) {
	if h.ebpfState != nil || h.opt.Pins == "" {
		return h.ebpfState, nil
	}
	cookie, err := h.cookie()
	if err != nil {
		return nil, err
	}
	if err := unix.Access(h.pins(cookie), unix.F_OK); err != nil {
		return nil, nil
	}
	return h.datapath()
}

// cookie identifies the host's namespace to the programs.
func (h *Host) cookie() (cookie uint64, err error) {
	err = h.ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the cookie of the network namespace (Linux 5.14 has it): %w", err)
	}
	return cookie, nil
}

// setBPF attaches what the object asks for: nothing, if it is what was found.
func (h *Host) setBPF(o plan.Object) error {
	if f, ok := o.(interface{ IsPartly() bool }); ok && f.IsPartly() {
		return nil
	}
	p, err := h.datapath()
	if err == nil {
		err = p.Repin()
	}
	if err != nil {
		return err
	}
	switch o := o.(type) {
	case plan.Uplinks:
		return h.setUplinks(p)
	case plan.LocalRealEgress:
		return h.setLocalRealEgress(p)
	case plan.FastPath:
		return h.setFastPath(p)
	case plan.Ingress:
		return h.onLink(o.Link, func(l netlink.Link) error {
			if !o.Shared {
				if err := p.SetEndpoint(l.Attrs().Index, o.Sources()); err != nil {
					return err
				}
			}
			return p.AttachLink(ingress(o), l.Attrs().Index, false)
		})
	case plan.LocalClients:
		return h.setLocalClients(p)
	case plan.BindHooks:
		return h.setBindHooks(p, o)
	}
	return fmt.Errorf("%T is no eBPF attachment", o)
}

// ingress names the program that the object is.
func ingress(i plan.Ingress) string {
	if i.Shared {
		return ebpf.Uplink
	}
	return ebpf.Sandbox
}

// delBPF takes away what the object has attached.
func (h *Host) delBPF(o plan.Object) error {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return err
	}
	switch o := o.(type) {
	case plan.Uplinks:
		err = h.delUplinks(p)
	case plan.LocalRealEgress:
		err = h.ns.Do(p.DetachLocalRealEgress)
	case plan.FastPath:
		err = h.delFastPath(p)
	case plan.Ingress:
		err = h.onLink(o.Link, func(l netlink.Link) error {
			return p.DetachLink(ingress(o), l.Attrs().Index)
		})
		if absent(err) {
			_, err = h.linksOf(p, ingress(o)) // forgets what is gone
		}
	case plan.LocalClients:
		err = h.delLocalClients(p)
	case plan.BindHooks:
		err = h.delBindHooks(p, o)
	}
	return errors.Join(err, h.unloadIdle())
}

// unloadIdle unloads the plane when nothing is left in it, or lets it rest.
func (h *Host) unloadIdle() error {
	if h.ebpfState == nil || !h.ebpfState.Idle() {
		return nil
	}
	p := h.ebpfState
	h.ebpfState = nil
	if !h.opt.Rest {
		return p.Remove()
	}
	h.resting = p
	return p.Rest()
}

// wake returns the plane that rests, pinned again, or nil: another process of
// ours may have loaded one of the host's meanwhile.
func (h *Host) wake(opt ebpf.Options) (*ebpf.Datapath, error) {
	p := h.resting
	h.resting = nil
	if p == nil {
		return nil, nil
	}
	if opt.Pins != "" && unix.Access(opt.Pins, unix.F_OK) == nil {
		return nil, p.Close()
	}
	return p, p.Repin()
}

// readBPF returns the object if it is attached.
func (h *Host) readBPF(o plan.Object) (plan.Object, error) {
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, err
	}
	switch o := o.(type) {
	case plan.Uplinks:
		whole, some, err := h.hasUplinks(p)
		o.Partly = !whole
		return orNil(o, whole || some), err
	case plan.LocalRealEgress:
		whole, some, err := h.hasLocalRealEgress(p)
		o.Partly = !whole
		return orNil(o, whole || some), err
	case plan.FastPath:
		whole, some, err := h.hasFastPath(p)
		o.Partly = !whole
		return orNil(o, whole || some), err
	case plan.Ingress:
		_, l, err := h.link("", o.Link)
		if err != nil {
			return nil, err
		}
		found, err := h.seenPrograms(p, ingress(o))
		if err != nil || o.Shared {
			return orNil(o, found[l.Attrs().Index]), err
		}
		sources, err := p.Endpoint(l.Attrs().Index)
		return orNil(plan.SandboxIngress(o.Link, sources), found[l.Attrs().Index]), err
	case plan.LocalClients:
		whole, some := h.hasLocalClients(p)
		o.Partly = !whole
		return orNil(o, some), nil
	case plan.BindHooks:
		return h.readBindHooks(p, o)
	}
	return nil, nil
}

// onLink runs fn for a link of the host, on a thread in its namespace.
func (h *Host) onLink(name string, fn func(netlink.Link) error) error {
	_, l, err := h.link("", name)
	if err != nil {
		return err
	}
	return h.ns.Do(func() error { return fn(l) })
}

// linksOf returns the interfaces that have a program.
func (h *Host) linksOf(p *ebpf.Datapath, program string) (found map[int]bool, err error) {
	err = h.ns.Do(func() error {
		found, err = p.LinksOf(program)
		return err
	})
	return found, err
}

// Flows calls fn for each flow that the eBPF programs remember.
func (h *Host) Flows(fn func(ebpf.Flow)) error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return err
	}
	return p.Flows(fn)
}

// ForgetFlows makes the eBPF programs forget every flow.
func (h *Host) ForgetFlows() error {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return err
	}
	var all []ebpf.Flow
	if err := p.Flows(func(f ebpf.Flow) { all = append(all, f) }); err != nil {
		return err
	}
	return p.Forget(all)
}

// TranslatedTraffic returns how many packets and bytes the eBPF programs have led to
// endpoints and back; none while there are no programs.
func (h *Host) TranslatedTraffic() (packets, bytes uint64, err error) {
	h.bpf.Lock()
	defer h.bpf.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return 0, 0, err
	}
	return p.Translated()
}
