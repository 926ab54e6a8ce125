package kernel

import (
	"fmt"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// readLink returns the link with the properties that the kernel has. It returns
// nil if the link is missing or not Fairlead's, or if an end of it is down.
func (h *Host) readLink(want plan.Link) (plan.Object, error) {
	handle, link, err := h.link(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	attrs := link.Attrs()
	if want.Kind == plan.Loopback {
		return orNil(want, isUp(link)), nil
	}
	if !isUp(link) || !ours(link) || !h.samePeer(link, want) {
		return nil, nil
	}
	found := want
	found.MTU = attrs.MTU
	found.Owner = strings.TrimPrefix(attrs.Alias, plan.Mark+":")
	found.Master, found.Hairpin = h.readPort(handle, link)
	if want.MAC != "" {
		found.MAC = attrs.HardwareAddr.String()
	}
	if found.IPv6, err = h.readIPv6(want, want.IPv6); err != nil {
		return nil, err
	}
	switch want.Kind {
	case plan.Bridge:
		found.Filter, err = h.bridgeFilter(link)
	case plan.Veth:
		if !want.Inside {
			return h.readPeer(found, want)
		}
	}
	return found, err
}

// readPeer adds the differences at the far end of a veth. It returns nil if the
// far end is down.
func (h *Host) readPeer(found, want plan.Link) (plan.Object, error) {
	peer, err := h.peer(found)
	if err != nil || !isUp(peer) {
		return nil, err
	}
	if mtu := peer.Attrs().MTU; mtu != want.MTU {
		found.MTU = mtu
	}
	if want.PeerMAC != "" {
		found.PeerMAC = peer.Attrs().HardwareAddr.String()
	}
	return found, nil
}

var staleLinkKind = kind[plan.StaleLink]{
	set:  func(*Host, plan.StaleLink) error { return nil }, // stale links are only ever removed
	del:  func(h *Host, o plan.StaleLink) error { return h.delLink(plan.Link{Netns: o.Netns, Name: o.Name}) },
	read: (*Host).readStaleLink,
}

// readStaleLink returns the link if it still exists and is Fairlead's.
func (h *Host) readStaleLink(r plan.StaleLink) (plan.Object, error) {
	_, link, err := h.link(r.Netns, r.Name)
	if err != nil {
		return nil, err
	}
	return orNil(r, ours(link)), nil
}

func isUp(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_UP != 0 }

// readPort returns the bridge that the link is a port of, and the port's hairpin
// mode.
func (h *Host) readPort(handle *netlink.Handle, link netlink.Link) (master string, hairpin bool) {
	if link.Attrs().MasterIndex == 0 {
		return "", false
	}
	if m, err := handle.LinkByIndex(link.Attrs().MasterIndex); err == nil {
		master = m.Attrs().Name
	}
	hairpin, _ = h.hairpin(link.Attrs().Index) // an unreadable mode is set again
	return master, hairpin
}

// leftovers returns Fairlead's links and routes in the host's namespace that are
// in no plan.
func (h *Host) leftovers(known map[string]bool) (plan.Plan, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	links, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var found plan.Plan
	for _, l := range links {
		o := plan.Link{Name: l.Attrs().Name, Kind: plan.Kind(l.Type()), MTU: l.Attrs().MTU,
			Owner: strings.TrimPrefix(l.Attrs().Alias, plan.Mark+":")}
		if ours(l) && !known[o.Key()] {
			found = append(found, o)
		} else if ours(l) {
			inside, err := h.leftoverParts(l, known)
			if err != nil {
				return nil, err
			}
			found = append(found, inside...)
		}
	}
	for _, d := range leftoverDevices(links) {
		if !known[d.Key()] {
			found = append(found, d)
		}
	}
	routes, err := h.routes("")
	for _, r := range routes {
		if !known[r.Key()] {
			found = append(found, r)
		}
	}
	return found, err
}
