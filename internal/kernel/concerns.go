package kernel

import (
	"slices"
	"strings"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"
)

// matcher decides which objects the pending events are about.
type matcher struct {
	PendingEvents
	id     func(netns string) int
	byName map[qdiscAt]*linkState
}

// concerns reports whether the recorded events show that an object differs. An
// event that agrees with the object does not concern it: mostly Fairlead has caused
// it.
func (m *matcher) concerns(o plan.Object) bool {
	concerned := kinds.of(o).concerned
	return concerned != nil && concerned(m, o)
}

// altered reports whether one of the link settings that the object consists of has
// changed.
func (m *matcher) altered(o plan.Object) bool {
	return slices.ContainsFunc(plan.LinkSettings(o),
		func(s plan.Sysctl) bool { return s.Netns == "" && m.settings[s.Name] })
}

// newUplink reports whether the events contain a new link through which packets
// from other hosts may arrive. This includes a link that is no longer Fairlead's,
// or no longer a port.
func (m *matcher) newUplink() bool {
	for id, l := range m.links {
		if id.namespace == netns.NoID && !l.gone && !l.loopback && !strings.HasPrefix(l.alias, plan.Mark+":") {
			return true
		}
	}
	return false
}

func (m *matcher) lost(a plan.Address) bool {
	ns := m.id(a.Netns)
	return m.addresses[addressAt{ns, a.Link, a.Prefix}] || m.addresses[addressAt{ns, "", a.Prefix}]
}

func (m *matcher) replaced(r plan.Route) bool {
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

func (m *matcher) unforwarded(f plan.Forwarding) bool {
	at := neighborAt{link: f.Link, mac: f.MAC}
	if f.Floods() {
		at.addr = f.Remote
	}
	seen, ok := m.neighbors[at]
	// The bridge's own entry for the MAC address has no IP address.
	return ok && (seen.gone || seen.addr.IsValid() && seen.addr != f.Remote)
}

func (m *matcher) unshaped(s plan.Shaper) bool {
	seen, ok := m.qdiscs[qdiscAt{m.id(s.Netns), s.Link}]
	return ok && (seen.gone || seen.handle != link.ShaperHandle || seen.rate != s.Rate/8)
}

// changed reports whether the events show that a link, or one of its settings,
// differs from the object.
func changed[T plan.Object](differs func(*matcher, T) bool) func(*matcher, T) bool {
	return func(m *matcher, o T) bool {
		return len(m.links) > 0 && differs(m, o) || len(m.settings) > 0 && m.altered(o)
	}
}

func (m *matcher) linkDiffers(o plan.Link) bool {
	if o.Kind == plan.Veth && !o.Inside &&
		m.differs(o.PeerNetns, o.Peer, want{kind: string(o.Kind), mtu: o.MTU, mac: o.PeerMAC}) {
		return true
	}
	if o.Kind == plan.Loopback {
		return m.differs(o.Netns, o.Name, want{})
	}
	return m.differs(o.Netns, o.Name, want{kind: string(o.Kind), mtu: o.MTU, mac: o.MAC, alias: o.Alias(),
		port: o.Kind == plan.Veth, master: o.Master, hairpin: o.Hairpin, filter: o.Filter})
}

func (m *matcher) subLinkDiffers(o plan.SubLink) bool {
	w := want{kind: string(o.Kind), mtu: o.MTU, mac: o.MAC, alias: o.Alias()}
	if o.Inside != "" {
		w = want{external: true}
	}
	return m.differs(o.Netns, o.Name, w)
}

func (m *matcher) tunnelDiffers(o plan.Tunnel) bool {
	return m.differs("", o.Name, want{kind: "vxlan", mtu: o.MTU, mac: o.MAC, alias: o.Alias(), port: true,
		master: o.Master})
}

func (m *matcher) wireGuardDiffers(o plan.WireGuard) bool {
	return m.differs("", o.Name, want{mtu: o.MTU, alias: o.Alias()})
}

func (m *matcher) deviceDiffers(o plan.Device) bool {
	return m.differs(o.Netns, o.Name, want{mtu: o.MTU, mac: o.MAC})
}

func (m *matcher) ipoibDiffers(o plan.IPoIB) bool {
	return m.differs(o.Netns, o.Name, want{mtu: o.MTU})
}

func (m *matcher) neighborDiffers(o plan.Neighbor) bool {
	seen, ok := m.neighbors[neighborAt{link: o.Link, addr: o.Addr}]
	return ok && (seen.gone || seen.mac != o.MAC)
}

// want is the desired state of a link. Fields with zero values are not compared.
type want struct {
	kind, mac, alias string
	mtu              int
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
func (m *matcher) differs(netns, name string, w want) bool {
	seen := m.byName[qdiscAt{m.id(netns), name}]
	switch {
	case seen == nil:
		return false
	case seen.gone || w.external:
		return seen.gone
	}
	return seen.needsCheck || !seen.up || w.kind != "" && seen.kind != w.kind || w.mtu != 0 && int(seen.mtu) != w.mtu ||
		w.mac != "" && seen.mac != w.mac || w.alias != "" && seen.alias != w.alias || seen.filter != w.filter ||
		w.port && (seen.masterName != w.master || w.master != "" && seen.hairpin != w.hairpin)
}
