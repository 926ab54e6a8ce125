package watch

import (
	"slices"
	"strings"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// Matcher compares pending events with objects: its methods report whether the
// events show that an object differs. An event that agrees with the object does not
// concern it: mostly Fairlead has caused it.
type Matcher struct {
	PendingEvents
	id     func(netns string) int
	byName map[qdiscAt]*linkState
}

// OfLink returns a function that reports whether the events show that a link, or
// one of its settings, differs from the object.
func OfLink[T plan.Object](differs func(*Matcher, T) bool) func(*Matcher, T) bool {
	return func(m *Matcher, o T) bool {
		return len(m.links) > 0 && differs(m, o) || len(m.settings) > 0 && m.linkSettingDiffers(o)
	}
}

// linkSettingDiffers reports whether one of the link settings that the object
// consists of has changed.
func (m *Matcher) linkSettingDiffers(o plan.Object) bool {
	return slices.ContainsFunc(plan.LinkSettings(o), m.SettingDiffers)
}

// SettingDiffers reports whether Check has read another value of the host's sysctl.
func (m *Matcher) SettingDiffers(s plan.Sysctl) bool { return s.Netns == "" && m.settings[s.Name] }

// MapsDiffer reports whether Check has found that the eBPF maps differ from what
// Fairlead has written.
func (m *Matcher) MapsDiffer() bool { return m.mappings }

// IPVSDiffers reports whether Check has found that a virtual service or a local
// route differs.
func (m *Matcher) IPVSDiffers() bool { return m.ipvs }

// TableChanged reports whether another program has changed Fairlead's nft table.
func (m *Matcher) TableChanged(name string) bool { return m.tables[name] }

// FilterDiffers reports whether a filter table of iptables has changed.
func (m *Matcher) FilterDiffers() bool { return m.firewall }

// NextHopsChanged reports whether links, addresses or routes have changed, so that
// packets may need another next hop.
func (m *Matcher) NextHopsChanged() bool { return len(m.routes)+len(m.addresses)+len(m.links) > 0 }

// MultipathChanged reports whether one of the host's multipath routes has changed.
func (m *Matcher) MultipathChanged() bool { return m.multipath }

// UplinksChanged reports whether the events contain a link through which packets
// from other hosts may arrive, or one that was deleted or has left the namespace. This
// includes a link that is no longer Fairlead's, or no longer a port.
func (m *Matcher) UplinksChanged() bool {
	for id, l := range m.links {
		if id.namespace == netns.NoID && !l.loopback && !strings.HasPrefix(l.alias, plan.Mark+":") {
			return true
		}
	}
	return false
}

// AddressDiffers reports whether the address was deleted.
func (m *Matcher) AddressDiffers(a plan.Address) bool {
	if len(m.addresses) == 0 {
		return false
	}
	ns := m.id(a.Netns)
	return m.addresses[addressAt{ns, a.Link, a.Prefix}] || m.addresses[addressAt{ns, "", a.Prefix}]
}

// RouteDiffers reports whether the route was deleted, changed or replaced.
func (m *Matcher) RouteDiffers(r plan.Route) bool {
	if len(m.routes) == 0 {
		return false
	}
	return slices.ContainsFunc(m.routes[routeAt{m.id(r.Netns), r.To}], func(s routeState) bool {
		switch {
		case s.foreign:
			return s.replaces && !s.gone
		case s.link != "" && s.link != r.Link:
			return false
		}
		return s.gone || s.via != r.Via
	})
}

// ForwardingDiffers reports whether the forwarding entry was deleted or changed.
func (m *Matcher) ForwardingDiffers(f plan.Forwarding) bool {
	at := neighborAt{link: f.Link, mac: f.MAC}
	if f.Floods() {
		at.addr = f.Remote
	}
	if m.neighborOfUnknownLink(at) {
		return true
	}
	seen, ok := m.neighbors[at]
	// The bridge's own entry for the MAC address has no IP address.
	return ok && (seen.gone || seen.addr.IsValid() && seen.addr != f.Remote)
}

// NeighborDiffers reports whether the neighbour entry was deleted or changed.
func (m *Matcher) NeighborDiffers(o plan.Neighbor) bool {
	at := neighborAt{link: o.Link, addr: o.Addr}
	seen, ok := m.neighbors[at]
	return ok && (seen.gone || seen.mac != o.MAC) || m.neighborOfUnknownLink(at)
}

// neighborOfUnknownLink reports whether an event is about an entry like this one, on a
// link whose name is unknown.
func (m *Matcher) neighborOfUnknownLink(at neighborAt) bool {
	at.link = ""
	_, ok := m.neighbors[at]
	return ok
}

// ShaperDiffers reports whether the token bucket was deleted or changed.
func (m *Matcher) ShaperDiffers(s plan.Shaper) bool {
	if len(m.qdiscs) == 0 {
		return false
	}
	ns := m.id(s.Netns)
	if _, unknown := m.qdiscs[qdiscAt{ns, ""}]; unknown { // after a start, the links of sandboxes are unknown
		return true
	}
	seen, ok := m.qdiscs[qdiscAt{ns, s.Link}]
	return ok && (seen.gone || seen.handle != rtnl.ShaperHandle || seen.rate != s.Rate/8)
}

// LinkDiffers reports whether a link or the far end of a veth differs.
func (m *Matcher) LinkDiffers(o plan.Link) bool {
	if o.Kind == plan.Veth && !o.Inside &&
		m.differs(o.PeerNetns, o.Peer, want{kind: string(o.Kind), mtu: o.MTU, mac: o.PeerMAC}) {
		return true
	}
	if o.Kind == plan.Loopback {
		return m.differs(o.Netns, o.Name, want{})
	}
	return m.differs(o.Netns, o.Name, want{kind: string(o.Kind), mtu: o.MTU, mac: o.MAC, alias: o.Alias(),
		group: o.Group, port: o.Kind == plan.Veth, master: o.Master, hairpin: o.Hairpin, filter: o.Filter})
}

// SubLinkDiffers reports whether a sub-link differs.
func (m *Matcher) SubLinkDiffers(o plan.SubLink) bool {
	w := want{kind: string(o.Kind), mtu: o.MTU, mac: o.MAC, alias: o.Alias(), group: o.Group}
	if o.Inside != "" {
		w = want{external: true}
	}
	return m.differs(o.Netns, o.Name, w)
}

// TunnelDiffers reports whether a tunnel's link differs.
func (m *Matcher) TunnelDiffers(o plan.Tunnel) bool {
	return m.differs("", o.Name, want{kind: "vxlan", mtu: o.MTU, mac: o.MAC, alias: o.Alias(), port: true,
		master: o.Master})
}

// WireGuardDiffers reports whether a WireGuard link differs.
func (m *Matcher) WireGuardDiffers(o plan.WireGuard) bool {
	return m.differs("", o.Name, want{mtu: o.MTU, alias: o.Alias()})
}

// DeviceDiffers reports whether a device in a sandbox differs.
func (m *Matcher) DeviceDiffers(o plan.Device) bool {
	return m.differs(o.Netns, o.Name, want{mtu: o.MTU, mac: o.MAC})
}

// IPoIBDiffers reports whether an IPoIB child differs.
func (m *Matcher) IPoIBDiffers(o plan.IPoIB) bool {
	return m.differs(o.Netns, o.Name, want{mtu: o.MTU})
}

// want is the desired state of a link. Fields with zero values are not compared.
type want struct {
	kind, mac, alias string
	mtu              int
	group            plan.LinkGroup
	// port compares the bridge and the port's settings.
	port            bool
	master          string
	hairpin, filter bool
	// external means that another program may change the link: only its removal
	// matters.
	external bool
}

// differs reports whether the latest event about a link differs from the desired
// state.
func (m *Matcher) differs(netns, name string, w want) bool {
	seen := m.byName[qdiscAt{m.id(netns), name}]
	switch {
	case seen == nil:
		return false
	case seen.gone || w.external:
		return seen.gone
	}
	return seen.needsCheck || !seen.up || w.kind != "" && seen.kind != w.kind || w.mtu != 0 && int(seen.mtu) != w.mtu ||
		w.mac != "" && seen.mac != w.mac || w.alias != "" && seen.alias != w.alias ||
		w.group != 0 && seen.group != uint32(w.group) || seen.filter != w.filter ||
		w.port && (seen.masterName != w.master || w.master != "" && seen.hairpin != w.hairpin)
}
