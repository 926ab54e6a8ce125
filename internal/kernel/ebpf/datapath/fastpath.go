package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// XDP selects the uplinks whose drivers run the fast path.
type XDP string

// The choices; "" means XDPNever.
const (
	// XDPAuto selects the links of network cards (PCI). Links that are software, on
	// this host or on the hypervisor below it, would lose segmentation offload.
	XDPAuto XDP = "auto"
	// XDPAlways selects every uplink whose driver supports it.
	XDPAlways XDP = "always"
	XDPNever  XDP = "never"
)

// ParseXDP parses a choice. An unknown one is an error.
func ParseXDP(s string) (XDP, error) {
	if all := []XDP{XDPAuto, XDPAlways, XDPNever}; !slices.Contains(all, XDP(s)) {
		return "", fmt.Errorf("xdp %q: want auto, always or never", s)
	}
	return XDP(s), nil
}

// FastPath returns the uplinks that the fast path was selected for, and the number
// of packets that it has handled. It returns none if no service needs the fast
// path. It is safe for concurrent use.
func (h *Handle) FastPath() ([]model.FastLink, uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, err := h.datapathIfAny()
	if err != nil || p == nil {
		return nil, 0, err
	}
	links, err := h.fastLinks()
	if err != nil {
		return nil, 0, err
	}
	found, err := p.XDPLinks()
	if err != nil || len(found)+len(h.fast) == 0 {
		return nil, 0, err
	}
	var all []model.FastLink
	for _, l := range links {
		f := model.FastLink{Link: l.Attrs().Name}
		if why := h.fast[f.Link]; why != nil && found[l.Attrs().Index] == nil {
			f.Refused = why.Error()
		}
		all = append(all, f)
	}
	packets, err := p.XDPPackets()
	return all, packets, err
}

// fastLinks returns the uplinks that the fast path is selected for.
func (h *Handle) fastLinks() ([]netlink.Link, error) {
	if h.opt.XDP != XDPAuto && h.opt.XDP != XDPAlways {
		return nil, nil
	}
	links, err := h.Uplinks()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(links, func(l netlink.Link) bool {
		a := l.Attrs()
		return ebpf.IsBare(l) || len(a.HardwareAddr) != 6 || h.opt.XDP == XDPAuto && a.ParentDevBus != "pci"
	}), nil
}

// FastPath are the programs in the drivers of uplinks (XDP).
var FastPath = Programs[plan.FastPath]{
	attach: setFastPath,
	detach: delFastPath,
	read:   readFastPath,
}

// setFastPath attaches the program to the selected uplinks' drivers, and detaches
// it from all others. Links are left to tc if the driver refuses the program or
// runs another XDP program.
func setFastPath(h *Handle, p *ebpf.Datapath, _ plan.FastPath) error {
	links, err := h.fastLinks()
	if err != nil {
		return err
	}
	wanted, before := map[int]bool{}, h.fast
	h.fast = make(map[string]error, len(links))
	err = h.ns.Do(func() error {
		if err := p.Serve(); err != nil {
			return err
		}
		var errs []error
		for _, l := range links {
			a := l.Attrs()
			wanted[a.Index] = true
			err := p.AttachXDP(a.Index, a.HardwareAddr)
			if errors.Is(err, ebpf.ErrNoXDP) || errors.Is(err, ebpf.ErrOccupied) {
				h.fast[a.Name] = err
				continue
			}
			if err != nil && !ebpf.HasLink(a.Index) {
				continue
			}
			if h.fast[a.Name] = nil; err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", a.Name, err))
			}
		}
		return errors.Join(append(errs, h.pruneFastPath(p, wanted))...)
	})
	h.reportRefused(before)
	return err
}

// reportRefused calls Options.Refused for each link that was not refused before.
func (h *Handle) reportRefused(before map[string]error) {
	if h.opt.Refused == nil {
		return
	}
	for _, link := range slices.Sorted(maps.Keys(h.fast)) {
		if why := h.fast[link]; why != nil && before[link] == nil {
			h.opt.Refused(link, why)
		}
	}
}

func (h *Handle) pruneFastPath(p *ebpf.Datapath, wanted map[int]bool) error {
	found, err := p.XDPLinks()
	errs := []error{err}
	for ifindex := range found {
		if !wanted[ifindex] {
			errs = append(errs, p.DetachXDP(ifindex))
		}
	}
	return errors.Join(errs...)
}

func delFastPath(h *Handle, p *ebpf.Datapath, _ plan.FastPath) error {
	h.fast = nil
	return h.ns.Do(func() error { return h.pruneFastPath(p, nil) })
}

func readFastPath(h *Handle, p *ebpf.Datapath, o plan.FastPath) (plan.Object, error) {
	whole, some, err := h.hasFastPath(p)
	o.Partly = !whole
	return plan.OrNil(o, whole || some), err
}

// hasFastPath reports whether exactly the selected drivers run the program, for
// their links' addresses. If not, some reports whether any driver runs it.
func (h *Handle) hasFastPath(p *ebpf.Datapath) (whole, some bool, err error) {
	links, err := h.fastLinks()
	if err != nil {
		return false, false, err
	}
	found, err := p.XDPLinks()
	if err != nil {
		return false, false, err
	}
	some = len(found) > 0
	for _, l := range links {
		a := l.Attrs()
		mac, there := found[a.Index]
		delete(found, a.Index)
		if why, known := h.fast[a.Name]; known && why != nil && !there {
			continue
		}
		if !there || mac.String() != a.HardwareAddr.String() {
			return false, some, nil
		}
	}
	return len(found) == 0, some, nil
}
