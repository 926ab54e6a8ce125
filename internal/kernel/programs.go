package kernel

import (
	"errors"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// programs is a kind of objects that are attached eBPF programs.
type programs[T plan.Object] struct {
	attach, detach func(*Host, *ebpf.Datapath, T) error
	// read is called only if a data path is loaded.
	read      func(*Host, *ebpf.Datapath, T) (plan.Object, error)
	concerned func(*matcher, T) bool
}

// kind returns the kind with the handling that is the same for all programs. An
// object that is marked as partly attached describes what was observed: set leaves
// it unchanged.
func (p programs[T]) kind() kind[T] {
	set := func(h *Host, o T) error {
		if f, ok := any(o).(interface{ IsPartly() bool }); ok && f.IsPartly() {
			return nil
		}
		h.bpf.Lock()
		defer h.bpf.Unlock()
		path, err := h.datapath()
		if err == nil {
			err = path.Repin()
		}
		if err != nil {
			return err
		}
		return p.attach(h, path, o)
	}
	del := func(h *Host, o T) error {
		h.bpf.Lock()
		defer h.bpf.Unlock()
		path, err := h.datapathIfAny()
		if err != nil || path == nil {
			return err
		}
		return errors.Join(p.detach(h, path, o), h.unloadIdle())
	}
	read := func(h *Host, o T) (plan.Object, error) {
		path, err := h.datapathIfAny()
		if err != nil || path == nil {
			return nil, err
		}
		return p.read(h, path, o)
	}
	return kind[T]{set: set, del: del, read: read, concerned: p.concerned, polled: true}
}

// detached is the concerned function of programs about which the kernel sends no
// events.
func detached[T plan.Object](m *matcher, _ T) bool { return m.bpf }

var ingressKind = programs[plan.Ingress]{
	attach:    (*Host).attachIngress,
	detach:    (*Host).detachIngress,
	read:      (*Host).readIngress,
	concerned: detached[plan.Ingress],
}.kind()

func (h *Host) attachIngress(p *ebpf.Datapath, o plan.Ingress) error {
	return h.onLink(o.Link, func(l netlink.Link) error {
		if !o.Shared {
			if err := p.Sources().SetEndpoint(l.Attrs().Index, o.Sources()); err != nil {
				return err
			}
		}
		return p.AttachLink(ingressProgram(o), l.Attrs().Index, false)
	})
}

func (h *Host) detachIngress(p *ebpf.Datapath, o plan.Ingress) error {
	err := h.onLink(o.Link, func(l netlink.Link) error {
		return p.DetachLink(ingressProgram(o), l.Attrs().Index)
	})
	if nlutil.Absent(err) {
		_, err = h.linksOf(p, ingressProgram(o)) // forgets programs of deleted links
	}
	return err
}

func (h *Host) readIngress(p *ebpf.Datapath, o plan.Ingress) (plan.Object, error) {
	_, l, err := h.rtnl.Link("", o.Link)
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
func (h *Host) seenPrograms(p *ebpf.Datapath, program string) (found map[int]bool, err error) {
	h.mu.Lock()
	found, ok := h.seenLinks[program]
	h.mu.Unlock()
	if ok {
		return found, nil
	}
	err = h.ns.Do(func() error {
		found, err = p.Sound(program)
		return err
	})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seenLinks == nil {
		h.seenLinks = map[string]map[int]bool{}
	}
	h.seenLinks[program] = found
	return found, nil
}
