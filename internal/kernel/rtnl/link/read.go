package link

import (
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// ReadLink returns the link with the properties that the kernel has. It returns
// nil if the link is missing or not Fairlead's, or if an end of it is down.
func (h *Handle) ReadLink(want plan.Link) (plan.Object, error) {
	link, err := h.LinkByName(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	attrs := link.Attrs()
	if want.Kind == plan.Loopback {
		return plan.OrNil(want, rtnl.IsUp(link)), nil
	}
	if !rtnl.IsUp(link) || !rtnl.Ours(link) || !h.samePeer(link, want) {
		return nil, nil
	}
	found := want
	found.MTU = attrs.MTU
	found.Owner = strings.TrimPrefix(attrs.Alias, plan.Mark+":")
	found.Master, found.Hairpin = h.ReadPort(want.Netns, link)
	if want.Group != 0 {
		found.Group = plan.LinkGroup(attrs.Group)
	}
	if want.MAC != "" {
		found.MAC = attrs.HardwareAddr.String()
	}
	if found.IPv6, err = h.ReadIPv6(want, want.IPv6); err != nil {
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
func (h *Handle) readPeer(found, want plan.Link) (plan.Object, error) {
	peer, err := h.peer(found)
	if err != nil || !rtnl.IsUp(peer) {
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

// ReadStaleLink returns the link if it still exists and is Fairlead's.
func (h *Handle) ReadStaleLink(r plan.StaleLink) (plan.Object, error) {
	link, err := h.LinkByName(r.Netns, r.Name)
	if err != nil {
		return nil, err
	}
	return plan.OrNil(r, rtnl.Ours(link)), nil
}
