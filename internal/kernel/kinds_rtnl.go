package kernel

import (
	"errors"
	"net/netip"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/device"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/kernel/rtnl/tunnel"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

func linksOf(h *Host) *link.Handle { return h.links }

func tunnelsOf(h *Host) *tunnel.Handle { return h.tunnels }

func devicesOf(h *Host) *device.Handle { return h.moved }

var addressKind = kind[plan.Address]{
	set:       on(linksOf, (*link.Handle).SetAddress),
	del:       on(linksOf, (*link.Handle).DelAddress),
	read:      reading(linksOf, (*link.Handle).ReadAddress),
	concerned: (*watch.Matcher).AddressDiffers,
}

var deviceKind = kind[plan.Device]{
	set:       on(devicesOf, (*device.Handle).SetDevice),
	del:       on(devicesOf, (*device.Handle).DelDevice),
	read:      reading(devicesOf, (*device.Handle).ReadDevice),
	concerned: watch.OfLink((*watch.Matcher).DeviceDiffers),
}

var forwardingKind = kind[plan.Forwarding]{
	set:       on(tunnelsOf, (*tunnel.Handle).SetForwarding),
	del:       on(tunnelsOf, (*tunnel.Handle).DelForwarding),
	read:      reading(tunnelsOf, (*tunnel.Handle).ReadForwarding),
	concerned: (*watch.Matcher).ForwardingDiffers,
}

var neighborKind = kind[plan.Neighbor]{
	set:       on(tunnelsOf, (*tunnel.Handle).SetNeighbor),
	del:       on(tunnelsOf, (*tunnel.Handle).DelNeighbor),
	read:      reading(tunnelsOf, (*tunnel.Handle).ReadNeighbor),
	concerned: (*watch.Matcher).NeighborDiffers,
}

var ipoibKind = kind[plan.IPoIB]{
	set:       on(devicesOf, (*device.Handle).SetIPoIB),
	del:       on(devicesOf, (*device.Handle).DelIPoIB),
	read:      reading(devicesOf, (*device.Handle).ReadIPoIB),
	concerned: watch.OfLink((*watch.Matcher).IPoIBDiffers),
}

var linkKind = kind[plan.Link]{
	set:       on(linksOf, (*link.Handle).SetLink),
	del:       on(linksOf, (*link.Handle).DelLink),
	read:      reading(linksOf, (*link.Handle).ReadLink),
	leftovers: (*Host).leftovers,
	concerned: watch.OfLink((*watch.Matcher).LinkDiffers),
}

var staleLinkKind = kind[plan.StaleLink]{
	set:  func(*Host, plan.StaleLink) error { return nil }, // stale links are only ever removed
	del:  func(h *Host, o plan.StaleLink) error { return h.links.DelLink(plan.Link{Netns: o.Netns, Name: o.Name}) },
	read: reading(linksOf, (*link.Handle).ReadStaleLink),
}

// leftovers returns Fairlead's links and routes in the host's namespace that are
// in no plan.
func (h *Host) leftovers(known map[string]bool) (plan.Plan, error) {
	links, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	var found plan.Plan
	for _, l := range links {
		o := plan.Link{Name: l.Attrs().Name, Kind: plan.Kind(l.Type()), MTU: l.Attrs().MTU,
			Owner: strings.TrimPrefix(l.Attrs().Alias, plan.Mark+":")}
		if rtnl.Ours(l) && !known[o.Key()] {
			found = append(found, o)
		} else if rtnl.Ours(l) {
			inside, err := h.tunnels.LeftoverParts(l, known)
			if err != nil {
				return nil, err
			}
			found = append(found, inside...)
		}
	}
	for _, d := range device.LeftoverDevices(links) {
		if !known[d.Key()] {
			found = append(found, d)
		}
	}
	routes, err := h.rtnl.Routes("")
	for _, r := range routes {
		if !known[r.Key()] {
			found = append(found, r)
		}
	}
	return found, err
}

var localRouteKind = kind[plan.LocalRoute]{
	set:       on(linksOf, (*link.Handle).SetLocalRoute),
	del:       on(linksOf, (*link.Handle).DelLocalRoute),
	read:      reading(linksOf, (*link.Handle).ReadLocalRoute),
	leftovers: reading(linksOf, (*link.Handle).LeftoverLocalRoutes),
	concerned: func(m *watch.Matcher, _ plan.LocalRoute) bool { return m.IPVSDiffers() },
}

var routeKind = kind[plan.Route]{
	set:       on(linksOf, (*link.Handle).SetRoute),
	del:       on(linksOf, (*link.Handle).DelRoute),
	read:      reading(linksOf, (*link.Handle).ReadRoute),
	concerned: (*watch.Matcher).RouteDiffers,
}

var shaperKind = kind[plan.Shaper]{
	set:       on(linksOf, (*link.Handle).SetShaper),
	del:       on(linksOf, (*link.Handle).DelShaper),
	read:      reading(linksOf, (*link.Handle).ReadShaper),
	concerned: (*watch.Matcher).ShaperDiffers,
}

var subLinkKind = kind[plan.SubLink]{
	set:       on(linksOf, (*link.Handle).SetSubLink),
	del:       on(linksOf, (*link.Handle).DelSubLink),
	read:      reading(linksOf, (*link.Handle).ReadSubLink),
	concerned: watch.OfLink((*watch.Matcher).SubLinkDiffers),
}

var sysctlKind = kind[plan.Sysctl]{
	set: on(linksOf, (*link.Handle).WriteSysctl),
	read: func(h *Host, s plan.Sysctl) (plan.Object, error) {
		value, err := h.rtnl.ReadSysctl(s)
		if s.Unless != "" && errors.Is(err, rtnl.ErrNoSetting) {
			return s, nil
		}
		if !s.Allows(value) {
			s.Value = value
		}
		return s, err
	},
	concerned: (*watch.Matcher).SettingDiffers,
}

var tunnelKind = kind[plan.Tunnel]{
	set:       on(tunnelsOf, (*tunnel.Handle).SetTunnel),
	del:       func(h *Host, t plan.Tunnel) error { return h.links.DelLink(plan.Link{Name: t.Name}) },
	read:      reading(tunnelsOf, (*tunnel.Handle).ReadTunnel),
	concerned: watch.OfLink((*watch.Matcher).TunnelDiffers),
}

var virtualAddressKind = kind[plan.VirtualAddress]{
	set:  on(linksOf, (*link.Handle).SetVirtual),
	del:  on(linksOf, (*link.Handle).DelVirtual),
	read: reading(linksOf, (*link.Handle).ReadVirtual),
	concerned: func(m *watch.Matcher, v plan.VirtualAddress) bool {
		return m.AddressDiffers(plan.Address{Link: v.Link, Prefix: netip.PrefixFrom(v.Addr, v.Addr.BitLen())})
	},
}

var wireGuardKind = kind[plan.WireGuard]{
	set:       on(tunnelsOf, (*tunnel.Handle).SetWireGuard),
	del:       func(h *Host, c plan.WireGuard) error { return h.links.DelLink(plan.Link{Name: c.Name}) },
	read:      reading(tunnelsOf, (*tunnel.Handle).ReadWireGuard),
	concerned: watch.OfLink((*watch.Matcher).WireGuardDiffers),
}

var wireGuardPeerKind = kind[plan.WireGuardPeer]{
	set:  on(tunnelsOf, (*tunnel.Handle).SetWireGuardPeer),
	del:  on(tunnelsOf, (*tunnel.Handle).DelWireGuardPeer),
	read: reading(tunnelsOf, (*tunnel.Handle).ReadWireGuardPeer),
}
