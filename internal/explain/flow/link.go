package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"
)

// transmit follows a packet over a link towards the next hop.
func (k *walker) transmit(netns string, l rtnl.NetLink, next netip.Addr, p packet) {
	if k.ended {
		return
	}
	switch l.Kind {
	case "bridge":
		k.fromBridge(netns, l, next, p)
	case "macvlan", "ipvlan":
		k.subLink(netns, l, next, p)
	case "vxlan":
		k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name, What: "goes through the tunnel to another host"})
		k.end(Leaves, "it leaves through the overlay %s, for the host that has %s", l.Name, next)
	case "veth":
		k.across(netns, l, next, p)
	default:
		k.leaveHost(netns, l, next, p)
	}
}

// leaveHost ends the walk of a packet that leaves this host.
func (k *walker) leaveHost(netns string, l rtnl.NetLink, next netip.Addr, p packet) {
	if !k.wire.exits(netns, l, next, &p) {
		return
	}
	k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name, What: "leaves this host, to " + next.String(),
		Clue: Clue{Netns: netns, Hook: "postrouting", Link: l.Name}})
	k.end(Leaves, "it leaves this host via %s, to %s", l.Name, next)
}

// across follows a packet over a veth pair.
func (k *walker) across(netns string, l rtnl.NetLink, next netip.Addr, p packet) {
	peer, ok := k.world.Links.Peer(netns, l)
	if !ok {
		k.leaveHost(netns, l, next, p)
		return
	}
	if k.wire.isDown(peer, p) {
		return
	}
	c := k.wire.begin(netns, l, next).with(stage{netns: peer.Netns, hook: "ingress", link: peer.Name})
	if peer.Bridge != "" {
		k.enterBridge(peer, c, p)
		return
	}
	if c.to.mac != nil && !k.wire.isFor(peer, c.to) {
		k.wire.notAssigned(c, p)
		return
	}
	if c.to.mac == nil && k.wire.notAnswered(l, peer, next) {
		k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name,
			What: fmt.Sprintf("%s of %s does not answer for %s", peer.Name, k.name(peer.Netns), next),
			Clue: Clue{Netns: netns, Hook: "postrouting", Link: l.Name}})
		k.end(NoRoute, "no interface behind %s of %s has %s", l.Name, k.name(netns), next)
		return
	}
	k.enter(c, l, peer, p)
}

// isDown reports whether a link is down, and then ends the walk.
func (w *wire) isDown(e End, p packet) bool {
	if e.Up {
		return false
	}
	w.hop(p, Hop{Kind: Link, Where: w.name(e.Netns), Link: e.Name, What: "is down", By: "ip link set " +
		escape.Shell(e.Name) + " up"})
	w.end(NoRoute, "%s of %s is down", e.Name, w.name(e.Netns))
	return true
}

// notAssigned ends the walk of a frame for a hardware address that no interface
// behind the link has.
func (w *wire) notAssigned(c crossing, p packet) {
	entry := fmt.Sprintf("ip neighbour: %s dev %s lladdr %s permanent", c.to.addr, c.from.Name, c.to.mac)
	w.hop(p, Hop{Kind: Link, Where: w.name(c.netns), Link: c.from.Name,
		What: fmt.Sprintf("sends it to %s, a hardware address that no interface behind the link has", c.to.mac),
		By:   entry})
	w.end(NoRoute, "%s has a wrong neighbour entry: no interface behind %s has %s", w.name(c.netns), c.from.Name,
		c.to.mac)
}

// notAnswered reports whether the other end of a link does not answer for the
// address. It is false for Fairlead's links, which have the entries that they
// need.
func (w *wire) notAnswered(l rtnl.NetLink, peer End, next netip.Addr) bool {
	return l.Owner == "" && peer.Owner == "" && !w.answersFor(peer, next) && !w.isProxy(peer, next)
}

// isProxy reports whether a link answers for an address that the namespace does not have
// (proxy ARP or proxy NDP): for IPv4 if it forwards packets to another link, and proxy_arp
// is set or the address is listed; for IPv6 if proxy_ndp is set and the address is listed
// (arp_process, ndisc_recv_ns).
func (w *wire) isProxy(e End, a netip.Addr) bool {
	set := func(family, name string) bool {
		return w.settings.Setting(e.Netns, plan.LinkSetting(family, e.Name, name)) == "1" ||
			w.settings.Setting(e.Netns, plan.LinkSetting(family, "all", name)) == "1"
	}
	list, _, err := w.links.Neighbours(e.Netns)
	listed := slices.ContainsFunc(list, func(n rtnl.NeighbourEntry) bool {
		return n.Proxied && n.Address == a && (n.Link == e.Name || n.Link == "")
	})
	switch {
	case w.fail(err):
		return false
	case !a.Is4():
		return listed && set("ipv6", "proxy_ndp")
	case !listed && !set("ipv4", "proxy_arp"):
		return false
	}
	r, err := w.router.routes.Route(e.Netns, rtnl.RouteQuery{To: a})
	return err == nil && r.Link != e.Name
}

// enter follows a packet into a namespace at the end of a crossing.
func (k *walker) enter(c crossing, l rtnl.NetLink, into End, p packet) {
	if k.wire.land(c, into, &p) {
		k.come(c.netns, l, into, p)
	}
}

// come follows a packet into a namespace through the other end of a link.
func (k *walker) come(netns string, l rtnl.NetLink, into End, p packet) {
	k.hop(p, Hop{Kind: Link, Where: k.name(into.Netns), Link: into.Name,
		What: fmt.Sprintf("arrives from %s of %s", l.Name, k.name(netns)),
		Clue: Clue{Netns: into.Netns, Hook: "prerouting", Link: into.Name}})
	k.arrive(into.Netns, into.Name, p)
}

// enterBridge follows a packet into the bridge of a port. Fairlead's programs are
// attached to the port, before the bridge.
func (k *walker) enterBridge(port End, c crossing, p packet) {
	if port.Netns == "" && k.usesEBPF(port.Name, p) {
		return
	}
	l, ok := linkOf(k.world.Links, port.Netns, port.Bridge)
	if ok && !k.wire.enslaved(port.Netns, port.NetLink) && !k.wire.isDown(End{port.Netns, l}, p) {
		k.bridge(port.Netns, l, port.Name, c, p)
	}
}

// enslaved reports whether a link belongs to one that is not a bridge, such as a VRF or Open
// vSwitch, and then ends the walk of a packet that arrives on it.
func (w *wire) enslaved(netns string, l rtnl.NetLink) bool {
	master, ok := linkOf(w.links, netns, l.Bridge)
	if !ok || master.Kind == "bridge" {
		return false
	}
	w.doubt("what %s (%s) does with packets that arrive on %s of %s is not followed", master.Name, master.Kind, l.Name,
		w.name(netns))
	w.end(Unknown, "%s of %s belongs to %s, which is not followed", l.Name, w.name(netns), master.Name)
	return true
}

// behind reports whether the peer of a port of the bridge has the address.
func (w *wire) behind(netns string, b rtnl.NetLink, a netip.Addr) bool {
	links, err := w.links.Links(netns)
	return err == nil && slices.ContainsFunc(links, func(l rtnl.NetLink) bool {
		end, ok := w.links.Peer(netns, l)
		return l.Bridge == b.Name && ok && end.Has(a)
	})
}

// Values of arp_ignore (Documentation/networking/ip-sysctl.rst): answer only for the
// link's own addresses, also only to their subnets, or not at all.
const (
	ignoreOthers       = "1"
	ignoreOtherSubnets = "2"
	ignoreAll          = "8"
)

// arpIgnore returns arp_ignore of a link: the larger one of its own and of all links.
func (w *wire) arpIgnore(e End) string {
	return max(w.settings.Setting(e.Netns, "net.ipv4.conf.all.arp_ignore"),
		w.settings.Setting(e.Netns, plan.LinkSetting("ipv4", e.Name, "arp_ignore")))
}

// answersFor reports whether an end answers for an address: its own, or for IPv4
// that of another link of its namespace, unless arp_ignore is set.
func (w *wire) answersFor(e End, a netip.Addr) bool {
	switch own := e.Has(a); {
	case !a.Is4():
		return own
	case w.arpIgnore(e) == ignoreAll:
		return false
	case own || w.arpIgnore(e) == ignoreOthers || w.arpIgnore(e) == ignoreOtherSubnets:
		return own
	}
	local, err := addresses(w.links, e.Netns)
	return err == nil && slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Addr() == a })
}

// subLink follows a packet out of a macvlan or ipvlan: to a sibling on the same
// parent, or out via the parent. It cannot reach the parent's host.
func (k *walker) subLink(netns string, l rtnl.NetLink, next netip.Addr, p packet) {
	parent, ok := k.world.Links.Peer(netns, l)
	if !ok {
		k.leaveHost(netns, l, next, p)
		return
	}
	c := k.wire.begin(netns, l, next)
	for _, sibling := range k.world.Links.SubLinks(parent.Netns, parent.NetLink) {
		if k.wire.isFor(sibling, c.to) && !sibling.Private && !l.Private {
			k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name,
				What: fmt.Sprintf("%s: via its parent, %s of %s, to the sibling that has %s", l.Kind, parent.Name,
					k.name(parent.Netns), next)})
			if !k.wire.isDown(sibling, p) {
				k.enter(c.with(stage{netns: sibling.Netns, hook: "ingress", link: sibling.Name}), l, sibling, p)
			}
			return
		}
	}
	if parent.Has(next) {
		k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name,
			What: fmt.Sprintf("%s: a sub-link cannot reach the host of its parent", l.Kind)})
		k.end(NoRoute, "a %s cannot reach the host of its parent at %s", l.Kind, next)
		return
	}
	k.hop(p, Hop{Kind: Link, Where: k.name(netns), Link: l.Name,
		What: fmt.Sprintf("%s: out via its parent, %s of %s, bypassing the host's rules", l.Kind, parent.Name,
			k.name(parent.Netns))})
	if k.reply && parent.Netns == "" && parent.Name == k.outside {
		if k.wire.exits("", parent.NetLink, next, &p) && k.comesFromDialled(netns, p) {
			k.returned()
		}
		return
	}
	k.transmit(parent.Netns, parent.NetLink, next, p)
}
