package datapath

import (
	"errors"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// Programs is what is done with objects that are attached eBPF programs.
type Programs[T plan.Object] struct {
	attach, detach func(*Handle, *ebpf.Datapath, T) error
	// read is called only if a data path is loaded.
	read func(*Handle, *ebpf.Datapath, T) (plan.Object, error)
}

// Set attaches the programs. An object that is marked as partly attached describes
// what was observed: Set leaves it unchanged.
func (p Programs[T]) Set(h *Handle, o T) error {
	if f, ok := any(o).(interface{ IsPartly() bool }); ok && f.IsPartly() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	path, err := h.Datapath()
	if err == nil {
		err = path.Repin()
	}
	if err != nil {
		return err
	}
	return p.attach(h, path, o)
}

// Del detaches the programs.
func (p Programs[T]) Del(h *Handle, o T) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	path, err := h.datapathIfAny()
	if err != nil || path == nil {
		return err
	}
	return errors.Join(p.detach(h, path, o), h.unloadIdle())
}

// Read returns the object if it is attached. The caller has locked the data
// path.
func (p Programs[T]) Read(h *Handle, o T) (plan.Object, error) {
	path, err := h.datapathIfAny()
	if err != nil || path == nil {
		return nil, err
	}
	return p.read(h, path, o)
}

// Ingress are the programs at the ingress of links.
var Ingress = Programs[plan.Ingress]{
	attach: attachIngress,
	detach: detachIngress,
	read:   readIngress,
}

func attachIngress(h *Handle, p *ebpf.Datapath, o plan.Ingress) error {
	return h.onLink(o.Link, func(l netlink.Link) error {
		if !o.Shared {
			if err := p.Sources().SetEndpoint(l.Attrs().Index, o.Sources()); err != nil {
				return err
			}
		}
		return p.AttachLink(ingressProgram(o), l.Attrs().Index, false)
	})
}

func detachIngress(h *Handle, p *ebpf.Datapath, o plan.Ingress) error {
	err := h.onLink(o.Link, func(l netlink.Link) error {
		return p.DetachLink(ingressProgram(o), l.Attrs().Index)
	})
	if nlutil.Absent(err) {
		_, err = h.linksOf(p, ingressProgram(o)) // forgets programs of deleted links
	}
	return err
}

func readIngress(h *Handle, p *ebpf.Datapath, o plan.Ingress) (plan.Object, error) {
	l, err := h.rtnl.LinkByName("", o.Link)
	if err != nil {
		return nil, err
	}
	found, err := h.seenPrograms(p, ingressProgram(o))
	if err != nil || o.Shared {
		return plan.OrNil(o, found[l.Attrs().Index]), err
	}
	sources, err := p.Sources().Endpoint(l.Attrs().Index)
	return plan.OrNil(plan.SandboxIngress(o.Link, sources), found[l.Attrs().Index]), err
}

// ingressProgram returns the name of the object's program.
func ingressProgram(i plan.Ingress) string {
	if i.Shared {
		return ebpf.Uplink
	}
	return ebpf.Sandbox
}

// seenPrograms returns the indices of the links that a program is attached to in
// working order.
func (h *Handle) seenPrograms(p *ebpf.Datapath, program string) (map[int]bool, error) {
	return h.seenLinks.Of(program, func() (found map[int]bool, err error) {
		err = h.ns.Do(func() error {
			found, err = p.Sound(program)
			return err
		})
		return found, err
	})
}
