package datapath

import (
	"errors"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/netns"
)

// Preload loads programs of the data path before a step attaches them: those for links, for socket calls, or both. They
// rest until a step needs them. It also attaches one in a temporary namespace. Returns an error if the kernel refuses
// any of this. It is safe for concurrent use.
func (h *Handle) Preload(links, sockets bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err == nil && p == nil {
		p, err = rested(h)
	}
	if err == nil && sockets {
		err = h.ns.Do(p.UseInCgroups)
	}
	if err == nil && links {
		err = useOnLinks(p)
	}
	return err
}

// rested returns the resting data path. If there is none, it loads one.
func rested(h *Handle) (*ebpf.Datapath, error) {
	if h.resting != nil {
		return h.resting, nil
	}
	err := loading(h, func(opt ebpf.Options) (err error) {
		h.resting, err = load(h, ebpf.LoadUnpinned, opt)
		return err
	})
	return h.resting, err
}

// useOnLinks calls UseOnLinks in a temporary namespace.
func useOnLinks(p interface{ UseOnLinks() error }) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	return errors.Join(ns.Do(p.UseOnLinks), ns.Close())
}
