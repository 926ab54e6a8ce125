package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
)

// transmit walks a packet over a link towards the next hop.
func (k *walker) transmit(netns string, l kernel.NetLink, next netip.Addr, p packet) {
	if k.ended {
		return
	}
	switch l.Kind {
	case "bridge":
		k.bridge(netns, l, "", next, p)
	case "macvlan", "ipvlan":
		k.branch(netns, l, next, p)
	case "vxlan":
		k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: "goes through the tunnel to another host"})
		k.end(Leaves, "it leaves through the overlay %s for the host that has %s", l.Name, next)
	case "veth":
		k.across(netns, l, next, p)
	default:
		k.away(netns, l, next, p)
	}
}

// away ends the walk where the packet leaves this host.
func (k *walker) away(netns string, l kernel.NetLink, next netip.Addr, p packet) {
	k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: "leaves this host, to " + next.String(),
		Clue: Clue{Netns: netns, Hook: "postrouting", Link: l.Name}})
	k.end(Leaves, "it leaves this host by %s, to %s", l.Name, next)
}

// across walks over a veth.
func (k *walker) across(netns string, l kernel.NetLink, next netip.Addr, p packet) {
	peer, ok := k.Peer(netns, l)
	if !ok {
		k.away(netns, l, next, p)
		return
	}
	if !peer.Up {
		k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: fmt.Sprintf("its other end, %s of %s, is down", peer.Name, k.Name(peer.Netns))})
		k.end(NoRoute, "%s of %s is down", peer.Name, k.Name(peer.Netns))
		return
	}
	if peer.Bridge != "" {
		k.enterBridge(peer, next, p)
		return
	}
	if k.nobodyAnswers(l, peer, next) {
		k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: fmt.Sprintf("nobody answers for %s at %s of %s", next, peer.Name, k.Name(peer.Netns)),
			Clue: Clue{Netns: netns, Hook: "postrouting", Link: l.Name}})
		k.end(NoRoute, "nobody has %s behind %s of %s", next, l.Name, k.Name(netns))
		return
	}
	k.come(netns, l, peer, p)
}

// nobodyAnswers reports whether ARP finds nobody at the other end of a link that
// is not ours. Ours have what they need.
func (k *walker) nobodyAnswers(l kernel.NetLink, peer End, next netip.Addr) bool {
	return next.Is4() && l.Owner == "" && peer.Owner == "" && !k.answersFor(peer, next) &&
		k.Setting(peer.Netns, "net.ipv4.conf."+peer.Name+".proxy_arp") == "0" && k.Setting(peer.Netns, "net.ipv4.conf.all.proxy_arp") == "0"
}

// come walks a packet into a namespace by the other end of a link.
func (k *walker) come(netns string, l kernel.NetLink, into End, p packet) {
	k.hop(p, Hop{Kind: Link, Where: k.Name(into.Netns), Link: into.Name, What: fmt.Sprintf("comes from %s of %s", l.Name, k.Name(netns)),
		Clue: Clue{Netns: into.Netns, Hook: "prerouting", Link: into.Name}})
	k.arrive(into.Netns, into.Name, p)
}

// enterBridge walks a packet into the bridge that a link is a port of. Our
// programs are at the port, before the bridge.
func (k *walker) enterBridge(port End, next netip.Addr, p packet) {
	if port.Netns == "" && k.steered(port.Name, p) {
		return
	}
	if l, ok := linkOf(k, port.Netns, port.Bridge); ok {
		k.bridge(port.Netns, l, port.Name, next, p)
	}
}

// bridge walks a packet through a bridge, from a port or from the bridge's own
// namespace, to whoever has the next hop's address.
func (k *walker) bridge(netns string, b kernel.NetLink, from string, next netip.Addr, p packet) {
	if from != "" && hasAddress(b, next) {
		k.hop(p, Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: fmt.Sprintf("bridge: from port %s up to the host, which is %s", from, next)})
		k.arrive(netns, b.Name, p)
		return
	}
	links, err := k.Links(netns)
	if k.fail(err) {
		return
	}
	var open []kernel.NetLink // ports behind which more may be
	for _, port := range links {
		if port.Bridge != b.Name || port.Name == from && !port.Hairpin {
			continue
		}
		end, ok := k.Peer(netns, port)
		if port.Kind != "veth" || !ok || end.Bridge != "" {
			open = append(open, port)
			continue
		}
		if end.Has(next) {
			k.switched(netns, b, from, port, end, next, p)
			return
		}
		if end.Owner == "" && port.Owner == "" {
			open = append(open, port)
		}
	}
	k.beyond(netns, b, open, next, p)
}

// switched walks a packet out of a bridge by a port.
func (k *walker) switched(netns string, b kernel.NetLink, from string, port kernel.NetLink, end End, next netip.Addr, p packet) {
	if from != "" && k.callsFilter(netns, p) && !k.filter(netns, "forward", b.Name, b.Name, p, true) {
		return
	}
	h := Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: fmt.Sprintf("bridge: out by port %s, where %s is", port.Name, next)}
	if from != "" {
		h.What = fmt.Sprintf("bridge: from port %s out by port %s, where %s is", from, port.Name, next)
	}
	k.hop(p, h)
	k.come(netns, port, end, p)
}

// callsFilter reports whether bridged packets pass the IP rules (br_netfilter).
func (k *walker) callsFilter(netns string, p packet) bool {
	name := "net.bridge.bridge-nf-call-ip6tables"
	if p.dst.Addr().Is4() {
		name = "net.bridge.bridge-nf-call-iptables"
	}
	return k.Setting(netns, name) == "1"
}

// beyond walks a packet whose next hop none of a bridge's known ports has.
func (k *walker) beyond(netns string, b kernel.NetLink, open []kernel.NetLink, next netip.Addr, p packet) {
	if i := slices.IndexFunc(open, func(l kernel.NetLink) bool { return l.Kind == "vxlan" }); i >= 0 {
		k.hop(p, Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: fmt.Sprintf("bridge: out by port %s, the tunnel to other hosts", open[i].Name)})
		k.end(Leaves, "it leaves through the overlay for the host that has %s", next)
		return
	}
	if len(open) == 0 {
		k.hop(p, Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: "bridge: no port leads to " + next.String()})
		k.end(NoRoute, "nobody on %s has %s", b.Name, next)
		return
	}
	for _, port := range open {
		end, ok := k.Peer(netns, port)
		if !ok {
			continue
		}
		// A bridge in another namespace, as the LAN is where it is one of ours.
		if inner, found := linkOf(k, end.Netns, end.Bridge); found && (hasAddress(inner, next) || k.behind(end.Netns, inner, next)) {
			k.hop(p, Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: "bridge: out by port " + port.Name})
			k.bridge(end.Netns, inner, end.Name, next, p)
			return
		}
	}
	k.hop(p, Hop{Kind: Bridge, Where: k.Name(netns), Link: b.Name, What: fmt.Sprintf("bridge: out by port %s, behind which %s must be", open[0].Name, next)})
	k.end(Leaves, "it leaves this host by %s, to %s", open[0].Name, next)
}

// behind reports whether a port of the bridge leads straight to the address.
func (k *walker) behind(netns string, b kernel.NetLink, a netip.Addr) bool {
	links, err := k.Links(netns)
	return err == nil && slices.ContainsFunc(links, func(l kernel.NetLink) bool {
		end, ok := k.Peer(netns, l)
		return l.Bridge == b.Name && ok && end.Has(a)
	})
}

// answersFor reports whether an end answers who asks for an address: its own, or
// IPv4's of another link there, unless the namespace is told to be strict.
func (k *walker) answersFor(e End, a netip.Addr) bool {
	if e.Has(a) || !a.Is4() {
		return e.Has(a)
	}
	if k.Setting(e.Netns, "net.ipv4.conf.all.arp_ignore") != "0" || k.Setting(e.Netns, "net.ipv4.conf."+e.Name+".arp_ignore") != "0" {
		return false
	}
	own, err := addresses(k, e.Netns)
	return err == nil && slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == a })
}

// branch walks a packet out by a macvlan or ipvlan: to a sibling on the same
// parent, or out by the parent. The parent's own host is not reached.
func (k *walker) branch(netns string, l kernel.NetLink, next netip.Addr, p packet) {
	parent, ok := k.Peer(netns, l)
	if !ok {
		k.away(netns, l, next, p)
		return
	}
	for _, sibling := range k.Branches(parent.Netns, parent.NetLink) {
		if k.answersFor(sibling, next) && !sibling.Private && !l.Private {
			k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name,
				What: fmt.Sprintf("%s: across its parent, %s of %s, to the sibling that has %s", l.Kind, parent.Name, k.Name(parent.Netns), next)})
			k.come(netns, l, sibling, p)
			return
		}
	}
	if parent.Has(next) {
		k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: fmt.Sprintf("%s: the parent's own host is not reached by its branches", l.Kind)})
		k.end(NoRoute, "a %s does not reach the host of its parent at %s", l.Kind, next)
		return
	}
	k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: fmt.Sprintf("%s: out by its parent, %s of %s, past the host's rules", l.Kind, parent.Name, k.Name(parent.Netns))})
	k.transmit(parent.Netns, parent.NetLink, next, p)
}
