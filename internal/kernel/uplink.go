package kernel

import (
	"errors"
	"fmt"

	"fairlead/internal/kernel/ebpf"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// uplinks returns the links of the host by which packets may come from
// elsewhere: neither loopback, nor ours, nor a port whose master receives for
// it. A program on a link that has none of Ethernet's headers must know that.
func (h *Host) uplinks() ([]netlink.Link, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	links, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	routing := map[int]bool{0: true}
	for _, l := range links {
		if l.Type() == "vrf" {
			routing[l.Attrs().Index] = true
		}
	}
	var found []netlink.Link
	for _, l := range links {
		a := l.Attrs()
		if a.RawFlags&unix.IFF_LOOPBACK == 0 && !ours(l) && routing[a.MasterIndex] && (isBare(l) || a.EncapType == "ether") {
			found = append(found, l)
		}
	}
	return found, nil
}

// isBare reports whether packets on the link have no link header: tunnels.
func isBare(l netlink.Link) bool { return l.Attrs().EncapType == "none" }

func (h *Host) setUplinks(p *ebpf.Datapath) error {
	links, err := h.uplinks()
	if err != nil {
		return err
	}
	return h.attachUplinks(p, links)
}

// attachUplinks puts the program on links. One that has gone meanwhile, as those
// do that container engines make for their sandboxes, is no uplink any more.
func (h *Host) attachUplinks(p *ebpf.Datapath, links []netlink.Link) error {
	multipath, err := h.multipath()
	if err != nil {
		return err
	}
	return h.ns.Do(func() error {
		var errs []error
		for _, l := range links {
			err := p.AttachLink(ebpf.Uplink, l.Attrs().Index, isBare(l))
			if err == nil {
				err = p.SetMultipath(l.Attrs().Index, multipath[l.Attrs().Index])
			}
			if err != nil && !ebpf.HasLink(l.Attrs().Index) {
				continue
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// setLocalRealEgress has answers of the host itself leave from virtual addresses.
func (h *Host) setLocalRealEgress(p *ebpf.Datapath) error {
	return h.ns.Do(func() error {
		if err := p.Serve(); err != nil {
			return err
		}
		return p.AttachLocalRealEgress()
	})
}

// hasLocalRealEgress reports whether every link that has a program at its ingress has
// that at its egress, or some have.
func (h *Host) hasLocalRealEgress(p *ebpf.Datapath) (whole, some bool, err error) {
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

// delUplinks takes the program from wherever it is.
func (h *Host) delUplinks(p *ebpf.Datapath) error {
	return h.ns.Do(func() error {
		found, err := p.LinksOf(ebpf.Uplink)
		errs := []error{err}
		for ifindex := range found {
			errs = append(errs, p.DetachLink(ebpf.Uplink, ifindex))
		}
		return errors.Join(errs...)
	})
}

// hasUplinks reports whether every uplink has the program, and the program knows
// its multipath routes; or whether some have it.
func (h *Host) hasUplinks(p *ebpf.Datapath) (whole, some bool, err error) {
	found, err := h.seenPrograms(p, ebpf.Uplink)
	if err != nil {
		return false, false, err
	}
	links, err := h.uplinks()
	if err != nil {
		return false, false, err
	}
	multipath, err := h.multipath()
	whole = err == nil
	for _, l := range links {
		index := l.Attrs().Index
		has := found[index]
		whole, some = whole && has, some || has
		if has && err == nil {
			var noted uint32
			noted, err = p.Multipath(index)
			whole = whole && noted == multipath[index]
		}
	}
	return whole, some, err
}
