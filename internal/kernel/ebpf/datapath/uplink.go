package datapath

import (
	"errors"

	"fairlead/internal/kernel/ebpf"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplinks returns the links of the host on which packets of other hosts can come
// in. It leaves out loopback, Fairlead's links and their other ends, which a container
// engine is about to move into a sandbox, and ports whose master receives their
// packets. Links without an Ethernet header are included; see ebpf.IsBare.
func (h *Handle) Uplinks() ([]netlink.Link, error) {
	links, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	routing, ours := map[int]bool{0: true}, map[int]bool{}
	for _, l := range links {
		if l.Type() == "vrf" {
			routing[l.Attrs().Index] = true
		}
		ours[l.Attrs().Index] = rtnl.Ours(l)
	}
	var found []netlink.Link
	for _, l := range links {
		a := l.Attrs()
		otherEnd := l.Type() == "veth" && a.NetNsID < 0 && ours[a.ParentIndex]
		if a.RawFlags&unix.IFF_LOOPBACK == 0 && !ours[a.Index] && !otherEnd && routing[a.MasterIndex] &&
			(ebpf.IsBare(l) || a.EncapType == "ether") {
			found = append(found, l)
		}
	}
	return found, nil
}

// Uplinks are the programs at the links towards other hosts.
var Uplinks = Programs[plan.Uplinks]{
	attach: setUplinks,
	detach: delUplinks,
	read:   readUplinks,
}

func setUplinks(h *Handle, p *ebpf.Datapath, _ plan.Uplinks) error {
	links, err := h.Uplinks()
	if err != nil {
		return err
	}
	return h.AttachUplinks(p, links)
}

// AttachUplinks attaches the program to links. It ignores links that were deleted
// meanwhile, such as those that container engines create for their sandboxes.
func (h *Handle) AttachUplinks(p *ebpf.Datapath, links []netlink.Link) error {
	multipath, err := h.rtnl.Multipath()
	if err != nil {
		return err
	}
	return h.ns.Do(func() error {
		var errs []error
		for _, l := range links {
			err := p.AttachLink(ebpf.Uplink, l.Attrs().Index, ebpf.IsBare(l))
			if err == nil {
				err = p.Sources().SetMultipath(l.Attrs().Index, multipath[l.Attrs().Index])
			}
			if err != nil && !ebpf.HasLink(l.Attrs().Index) {
				continue
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// LocalRealEgress are the programs for answers of real servers on this host.
var LocalRealEgress = Programs[plan.LocalRealEgress]{
	attach: setLocalRealEgress,
	detach: func(h *Handle, p *ebpf.Datapath, _ plan.LocalRealEgress) error {
		return h.ns.Do(p.DetachLocalRealEgress)
	},
	read: readLocalRealEgress,
}

// setLocalRealEgress makes answers of real servers on this host leave with the
// virtual address as their source.
func setLocalRealEgress(h *Handle, p *ebpf.Datapath, _ plan.LocalRealEgress) error {
	return h.ns.Do(func() error {
		if err := p.Serve(); err != nil {
			return err
		}
		return p.AttachLocalRealEgress()
	})
}

func readLocalRealEgress(h *Handle, p *ebpf.Datapath, o plan.LocalRealEgress) (plan.Object, error) {
	whole, some, err := h.hasLocalRealEgress(p)
	o.Partly = !whole
	return plan.OrNil(o, whole || some), err
}

// hasLocalRealEgress reports whether every link with a program at its ingress has
// the egress program (whole), and whether some have it.
func (h *Handle) hasLocalRealEgress(p *ebpf.Datapath) (whole, some bool, err error) {
	found, err := h.seenPrograms(p, ebpf.LocalRealEgress)
	if err != nil || len(found) == 0 {
		return false, false, err
	}
	for _, program := range []string{ebpf.Uplink, ebpf.Sandbox} {
		links, err := h.seenPrograms(p, program)
		if err != nil {
			return false, true, err
		}
		for ifindex := range links {
			if !found[ifindex] {
				return false, true, nil
			}
		}
	}
	return true, true, nil
}

// delUplinks detaches the program from all links.
func delUplinks(h *Handle, p *ebpf.Datapath, _ plan.Uplinks) error {
	return h.ns.Do(func() error {
		found, err := p.LinksOf(ebpf.Uplink)
		errs := []error{err}
		for ifindex := range found {
			errs = append(errs, p.DetachLink(ebpf.Uplink, ifindex))
		}
		return errors.Join(errs...)
	})
}

func readUplinks(h *Handle, p *ebpf.Datapath, o plan.Uplinks) (plan.Object, error) {
	whole, some, err := h.hasUplinks(p)
	o.Partly = !whole
	return plan.OrNil(o, whole || some), err
}

// hasUplinks reports whether every uplink has the program, and the program knows
// its multipath routes; or whether some have it.
func (h *Handle) hasUplinks(p *ebpf.Datapath) (whole, some bool, err error) {
	found, err := h.seenPrograms(p, ebpf.Uplink)
	if err != nil {
		return false, false, err
	}
	links, err := h.Uplinks()
	if err != nil {
		return false, false, err
	}
	multipath, err := h.rtnl.Multipath()
	whole = err == nil
	for _, l := range links {
		index := l.Attrs().Index
		has := found[index]
		whole, some = whole && has, some || has
		if has && err == nil {
			var noted uint32
			noted, err = p.Sources().Multipath(index)
			whole = whole && noted == multipath[index]
		}
	}
	return whole, some, err
}
