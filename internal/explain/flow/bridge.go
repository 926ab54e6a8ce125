package flow

import (
	"fmt"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
)

// bridge follows a packet through a bridge to the interface that the frame is
// for. It comes from a port; if from is empty, from the bridge's namespace.
func (k *walker) bridge(netns string, b rtnl.NetLink, from string, c crossing, p packet) {
	links, err := k.world.Links.Links(netns)
	if k.fail(err) {
		return
	}
	in, _ := linkOf(k.world.Links, netns, from)
	if from != "" {
		if !k.wire.forwardsFrames(netns, in, p) {
			return
		}
		c = c.with(stage{netns: netns, bridge: b.Name, hook: "prerouting", in: from})
		why := "which has " + c.to.addr.String()
		is := k.wire.isBridges(netns, b, links, c.to)
		if is {
			k.wire.duplicated(netns, b, links, in, c.to)
		}
		if !is && k.takesAnswer(netns, b, p) {
			is, why = true, "whose NAT sent the request from "+p.dst.Addr().String()
		}
		if is {
			c = c.with(stage{netns: netns, bridge: b.Name, hook: "input", in: from},
				stage{netns: netns, hook: "ingress", link: b.Name})
			if k.wire.isDown(End{netns, b}, p) || !k.wire.land(c, End{netns, b}, &p) {
				return
			}
			k.hop(p, Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name,
				What: fmt.Sprintf("bridge: from port %s up to %s, %s", from, k.name(netns), why)})
			p.port, p.sender = from, c.from.MAC
			k.arrive(netns, b.Name, p)
			return
		}
	}
	k.forwardFrame(netns, b, links, in, c, p)
}

// forwardFrame follows a frame out of a bridge, to the port of the interface that it is for.
func (k *walker) forwardFrame(netns string, b rtnl.NetLink, links []rtnl.NetLink, in rtnl.NetLink, c crossing,
	p packet) {
	if b.Filtering {
		k.doubt("%s of %s filters VLANs, which is not followed", b.Name, k.name(netns))
	}
	found, open, isolated := k.wire.ports(netns, b, links, in, c.to)
	switch {
	case len(found) > 0:
		if len(found) > 1 {
			k.doubt("%s is at several ports of %s: %s and %s", c.to.addr, b.Name, found[0].Name, found[1].Name)
		}
		k.switched(netns, b, in, found[0], c, p)
	case isolated != "":
		k.wire.isolated(netns, b, in.Name, isolated, p)
	case k.wire.isBehind(netns, in, c.to):
		k.wire.notReturned(netns, b, in, c.to, p)
	case k.reply && netns == "" && b.Name == k.outside: // the client is at a port that is not known
		if k.callsRules(netns, b, in, &p) && k.comesFromDialled(netns, p) {
			k.returned()
		}
	case c.to.mac != nil && len(open) == 0:
		k.wire.notAssigned(c, p)
	default:
		k.beyond(netns, b, open, c, p)
	}
}

// isBridges reports whether a frame in a bridge is for the bridge's namespace, also as a proxy
// for another address.
func (w *wire) isBridges(netns string, b rtnl.NetLink, links []rtnl.NetLink, t target) bool {
	if t.mac == nil {
		return w.answersFor(End{netns, b}, t.addr) || w.isProxy(End{netns, b}, t.addr)
	}
	return slices.ContainsFunc(links, func(l rtnl.NetLink) bool {
		return (l.Bridge == b.Name || l.Name == b.Name) && l.MAC == t.mac.String()
	})
}

// duplicated marks the verdict as uncertain if the bridge's namespace is not the only one that
// answers for an address: whose answer the sender takes depends on which is earlier.
func (w *wire) duplicated(netns string, b rtnl.NetLink, links []rtnl.NetLink, in rtnl.NetLink, t target) {
	if t.mac != nil {
		return
	}
	if found, _, _ := w.ports(netns, b, links, in, t); len(found) > 0 {
		w.doubt("%s and the machine at port %s of %s both answer for %s: which one gets the packet is not certain",
			w.name(netns), found[0].Name, b.Name, t.addr)
	}
}

// ports returns the ports of a bridge behind which the frame's target is, and the
// ports behind which there may be more interfaces. isolated is the target's port
// if only port isolation prevents delivery.
func (w *wire) ports(netns string, b rtnl.NetLink, links []rtnl.NetLink, in rtnl.NetLink, t target) (
	found, open []rtnl.NetLink, isolated string) {
	for _, port := range links {
		if port.Bridge != b.Name || port.Name == in.Name && !port.Hairpin {
			continue
		}
		apart := in.Port.Isolated && port.Port.Isolated
		end, ok := w.links.Peer(netns, port)
		switch {
		case port.Kind == "veth" && ok && end.Bridge == "" && w.isFor(end, t):
			if apart {
				isolated = port.Name
			} else {
				found = append(found, port)
			}
		case apart:
		case port.Kind != "veth" || !ok || end.Bridge != "" ||
			end.Owner == "" && (w.isProxy(end, t.addr) || len(w.links.SubLinks(end.Netns, end.NetLink)) > 0):
			open = append(open, port)
		}
	}
	return found, open, isolated
}

// forwardsFrames reports whether a port forwards frames, and ends the walk if it
// does not.
func (w *wire) forwardsFrames(netns string, port rtnl.NetLink, p packet) bool {
	for _, s := range port.Port.Special {
		if port.Owner != "" && s == "neigh_suppress on" { // our tunnels: no address behind them must be resolved
			continue
		}
		w.doubt("port %s of %s has %s, which is not followed", port.Name, port.Bridge, s)
	}
	if state := port.Port.State; state != "" && state != "forwarding" {
		w.hop(p, Hop{Kind: Bridge, Where: w.name(netns), Link: port.Name, What: "bridge: port " + port.Name +
			" is in the state " + state})
		w.end(Dropped, "port %s of %s is in the state %s and forwards nothing", port.Name, port.Bridge, state)
		return false
	}
	return true
}

// isolated ends the walk between two isolated ports.
func (w *wire) isolated(netns string, b rtnl.NetLink, from, to string, p packet) {
	w.hop(p, Hop{Kind: Bridge, Where: w.name(netns), Link: b.Name,
		What: fmt.Sprintf("bridge: ports %s and %s are isolated from each other", from, to),
		By:   "bridge link set dev " + to + " isolated off"})
	w.end(Dropped, "ports %s and %s of %s are isolated from each other", from, to, b.Name)
}

// switched follows a packet out of a bridge via a port.
func (k *walker) switched(netns string, b, in, port rtnl.NetLink, c crossing, p packet) {
	end, ok := k.world.Links.Peer(netns, port)
	if !ok || k.wire.isDown(End{netns, port}, p) || k.wire.isDown(end, p) || !k.wire.forwardsFrames(netns, port, p) ||
		k.wire.misdirected(netns, b, port, end, p) {
		return
	}
	first := stage{netns: netns, bridge: b.Name, hook: "output", out: port.Name}
	h := Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name,
		What: fmt.Sprintf("bridge: out via port %s, where %s is", port.Name, c.to.addr)}
	if in.Name != "" {
		first = stage{netns: netns, bridge: b.Name, hook: "forward", in: in.Name, out: port.Name}
		h.What = fmt.Sprintf("bridge: from port %s out via port %s, where %s is", in.Name, port.Name, c.to.addr)
	}
	if !k.callsRules(netns, b, in, &p) {
		return
	}
	if in.Name != "" && !p.stays && k.wire.callsFilter(netns, b, p) {
		c = c.with(stage{netns: netns, bridge: b.Name, hook: bridgedIP})
	}
	c = c.with(first, stage{netns: netns, bridge: b.Name, hook: "postrouting", out: port.Name},
		stage{netns: netns, hook: "egress", link: port.Name}, stage{netns: end.Netns, hook: "ingress", link: end.Name})
	if !k.wire.land(c, end, &p) {
		return
	}
	k.hop(p, h)
	k.come(netns, port, end, p)
}

// misdirected reports whether the bridge's forwarding table sends the end's frames
// to another port, and then ends the walk.
func (w *wire) misdirected(netns string, b, port rtnl.NetLink, end End, p packet) bool {
	_, table, err := w.links.Neighbours(netns)
	if w.fail(err) {
		return true
	}
	for _, e := range table {
		other, ok := linkOf(w.links, netns, e.Link)
		if e.Permanent && ok && other.Bridge == b.Name && e.Link != port.Name && e.MAC.String() == end.MAC {
			w.hop(p, Hop{Kind: Bridge, Where: w.name(netns), Link: b.Name,
				What: fmt.Sprintf("bridge: out via port %s, although %s is at port %s", e.Link, end.MAC, port.Name),
				By:   fmt.Sprintf("bridge fdb: %s dev %s static", e.MAC, e.Link)})
			w.doubt("the next frame from %s on port %s may move the forwarding entry there, unless the entry is sticky",
				end.MAC, port.Name)
			w.end(NoRoute, "the forwarding table of %s sends frames for %s to port %s, but that address is at port %s",
				b.Name, end.MAC, e.Link, port.Name)
			return true
		}
	}
	return false
}

// bridgeFilter follows a bridged packet through the IP rules (br_netfilter).
func (n *netfilter) bridgeFilter(netns string, b rtnl.NetLink, p *packet) bool {
	rs, ok := n.rules(netns)
	if !ok {
		return false
	}
	for _, hook := range []string{"prerouting", "postrouting"} {
		if v := rs.Translate(hook, n.packetAt(netns, b.Name, b.Name, *p)); !n.reply &&
			(v.Action != rules.Accept || !v.Certain) {
			n.doubt("NAT of bridged packets (%s) is not followed: %s", "bridge-nf-call-iptables", ruleText(v.By))
		}
	}
	if !n.filter(netns, "prerouting", rules.WholeHook, b.Name, "", p, false) ||
		!n.filter(netns, "forward", rules.WholeHook, b.Name, b.Name, p, true) ||
		!n.filter(netns, "postrouting", rules.BeforeNAT, "", b.Name, p, false) {
		return false
	}
	if n.reply {
		*p = n.untranslate(netns, "postrouting", *p)
	}
	return n.filter(netns, "postrouting", rules.AfterNAT, "", b.Name, p, false)
}

// callsFilter reports whether packets that a bridge forwards pass the IP rules
// (br_netfilter): because of the bridge's own setting, or of the one for all bridges.
func (w *wire) callsFilter(netns string, b rtnl.NetLink, p packet) bool {
	name, own := "net.bridge.bridge-nf-call-ip6tables", b.CallsIP6Tables
	if p.dst.Addr().Is4() {
		name, own = "net.bridge.bridge-nf-call-iptables", b.CallsIPTables
	}
	return own || w.settings.Setting(netns, name) == "1"
}

// beyond follows a packet whose next hop is not behind a known port of a bridge.
func (k *walker) beyond(netns string, b rtnl.NetLink, open []rtnl.NetLink, c crossing, p packet) {
	next := c.to.addr
	if i := slices.IndexFunc(open, func(l rtnl.NetLink) bool { return l.Kind == "vxlan" }); i >= 0 {
		k.hop(p, Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name,
			What: fmt.Sprintf("bridge: out via port %s, the tunnel to other hosts", open[i].Name)})
		if k.reply && netns == "" && open[i].Name == k.outside {
			k.returned()
			return
		}
		k.end(Leaves, "it leaves through the overlay, for the host that has %s", next)
		return
	}
	if len(open) == 0 {
		k.hop(p, Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name, What: "bridge: no interface at its ports has " +
			next.String()})
		k.end(NoRoute, "no interface on %s has %s", b.Name, next)
		return
	}
	for _, port := range open {
		end, ok := k.world.Links.Peer(netns, port)
		if !ok || !k.wire.forwardsFrames(netns, port, p) {
			continue
		}
		// A bridge in another namespace, e.g. the LAN if a test emulates it.
		inner, found := linkOf(k.world.Links, end.Netns, end.Bridge)
		if found && (hasAddress(inner, next) || k.wire.behind(end.Netns, inner, next)) {
			k.hop(p, Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name, What: "bridge: out via port " + port.Name})
			k.bridge(end.Netns, inner, end.Name, c.with(stage{netns: netns, hook: "egress", link: port.Name},
				stage{netns: end.Netns, hook: "ingress", link: end.Name}), p)
			return
		}
		for _, subLink := range k.world.Links.SubLinks(end.Netns, end.NetLink) {
			if k.wire.isFor(subLink, c.to) {
				k.doubt("%s of %s is a sub-link of %s, behind port %s of %s, which is not followed in detail",
					subLink.Name, k.name(subLink.Netns), end.Name, port.Name, b.Name)
				k.enter(c, port, subLink, p)
				return
			}
		}
	}
	k.hop(p, Hop{Kind: Bridge, Where: k.name(netns), Link: b.Name,
		What: fmt.Sprintf("bridge: out via port %s, behind which %s must be", open[0].Name, next)})
	k.end(Leaves, "it leaves this host via %s, to %s", open[0].Name, next)
}
