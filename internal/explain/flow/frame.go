package flow

import (
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// wire follows frames over links and through bridges: which interface a frame is
// for, and whether it arrives there.
type wire struct {
	*report
	links     Links
	settings  Settings
	router    *router
	netfilter *netfilter
	proto     model.Proto
	// learned are the hardware addresses that ends learn from requests on the path.
	learned map[neighbour]net.HardwareAddr
}

// neighbour is an address on a link of a namespace.
type neighbour struct {
	netns, link string
	addr        netip.Addr
}

// target is the interface that a frame is for: the one with the next hop's
// address, or with the hardware address of a permanent neighbour entry.
type target struct {
	addr netip.Addr
	mac  net.HardwareAddr // nil if the address must be resolved
	// learned says that the kernel has mac from a request on the path, and asks again when it is old.
	learned bool
}

// crossing is a frame that is sent from a link, with the stages that it passes. If the link
// has no name, another machine sends it, of which only the addresses are known.
type crossing struct {
	netns  string
	from   rtnl.NetLink
	to     target
	stages []stage
}

// begin begins a crossing. If the sender has a permanent neighbour entry for the
// next hop, the frame is for that hardware address.
func (w *wire) begin(netns string, l rtnl.NetLink, next netip.Addr) crossing {
	c := crossing{netns: netns, from: l, to: target{addr: next},
		stages: []stage{{netns: netns, hook: "egress", link: l.Name}}}
	if e, ok := w.entry(netns, l.Name, next); ok && e.Permanent {
		c.to.mac = e.MAC
	} else if mac, ok := w.learned[neighbour{netns, l.Name, next}]; ok {
		c.to.mac, c.to.learned = mac, true
	}
	return c
}

// entry returns a namespace's valid entry for a neighbour.
func (w *wire) entry(netns, link string, a netip.Addr) (rtnl.NeighbourEntry, bool) {
	list, _, err := w.links.Neighbours(netns)
	if w.fail(err) {
		return rtnl.NeighbourEntry{}, false
	}
	i := slices.IndexFunc(list, func(e rtnl.NeighbourEntry) bool { return e.Link == link && e.Address == a && e.Valid })
	if i < 0 {
		return rtnl.NeighbourEntry{}, false
	}
	return list[i], true
}

// with returns a copy of the crossing with more stages.
func (c crossing) with(more ...stage) crossing {
	c.stages = append(slices.Clone(c.stages), more...)
	return c
}

// isFor reports whether the frame is for an end.
func (w *wire) isFor(e End, t target) bool {
	if t.mac != nil {
		return e.MAC == t.mac.String()
	}
	return w.answersFor(e, t.addr)
}

// land ends a crossing at the link that the frame is for: address resolution and
// the frame itself pass the filters of all stages. It reports whether the frame
// arrives, and ends the walk if it does not.
func (w *wire) land(c crossing, end End, p *packet) bool {
	if w.ended || !w.resolved(c, end, *p) {
		return false
	}
	netns, source := c.netns, c.from.MAC
	if p.stays {
		source = p.sender
	}
	for _, s := range append(slices.Clone(c.stages), stage{netns: end.Netns}) {
		if s.netns != netns { // the kernel clears the mark and forgets the connection
			netns, p.mark, p.dnat, p.bound = s.netns, rules.Bits{}, false, ""
		}
		if s.hook == "" {
			break
		}
		frame := w.netfilter.packetAt(s.netns, s.in, s.out, *p)
		frame.HardFrom, _ = net.ParseMAC(source)
		frame.HardTo, _ = net.ParseMAC(end.MAC)
		after, ok := w.netfilter.stagePasses(s, frame, *p)
		if !ok {
			return false
		}
		p.mark = after.Mark
	}
	p.port, p.sender, p.stays = "", "", false
	return true
}

// resolved reports whether the sender can resolve the hardware address of the
// end, and ends the walk if it cannot.
func (w *wire) resolved(c crossing, end End, p packet) bool {
	v6 := c.to.addr.Is6()
	if c.to.mac != nil || c.from.Owner != "" && end.Owner != "" {
		if c.to.learned {
			w.renews(c, end, p)
		}
		return true
	}
	name := map[bool]string{false: "ARP", true: "Neighbor Discovery"}[v6]
	for _, e := range []End{{c.netns, c.from}, end} {
		if e.NoARP {
			w.hop(p, Hop{Kind: Link, Where: w.name(e.Netns), Link: e.Name,
				What: "does not resolve addresses: " + name + " is off on this link", By: "ip link set dev " + e.Name +
					" arp on"})
			w.end(NoRoute, "%s of %s does not use %s (arp off), so %s cannot be resolved", e.Name, w.name(e.Netns),
				name, c.to.addr)
			return false
		}
	}
	if e, ok := w.entry(c.netns, c.from.Name, c.to.addr); ok {
		if e.MAC.String() != end.MAC {
			w.doubt("%s has an outdated neighbour entry: %s is %s, but %s has that address: packets are lost until the entry expires",
				w.name(c.netns), c.to.addr, e.MAC, end.MAC)
		}
		w.renews(c, end, p)
		return true // the address is already resolved
	}
	ask, answer, ok := w.exchange(c, end, p)
	if !ok {
		return false
	}
	w.learned[neighbour{end.Netns, end.Name, ask.From.Addr()}] = ask.HardFrom
	w.learned[neighbour{c.netns, c.from.Name, c.to.addr}] = answer.HardFrom
	return true
}

// renews follows the messages that renew an entry of a neighbour, which the kernel sends when the entry is old. The
// packet does not need them, so a rule that drops them is a doubt.
func (w *wire) renews(c crossing, end End, p packet) {
	w.netfilter.renews = true
	w.exchange(c, end, p)
	w.netfilter.renews = false
}

// exchange follows the question for the end's hardware address and the answer, and reports whether both arrive.
func (w *wire) exchange(c crossing, end End, p packet) (ask, answer rules.Packet, ok bool) {
	ask = w.solicitation(c, end, p)
	answer = ask
	answer.From, answer.To, answer.Neighbour = netip.AddrPortFrom(c.to.addr, 0), ask.From, rules.Advertisement
	answer.HardFrom, answer.HardTo = ask.HardTo, ask.HardFrom
	ask.HardTo = nil // broadcast or multicast
	if c.to.addr.Is6() {
		ask.To = netip.AddrPortFrom(solicitedNode(c.to.addr), 0)
	}
	sender := End{c.netns, c.from}
	ok = w.asks(sender, end, ask, c.stages, p) && w.asks(end, sender, answer, reversed(c.stages), p)
	return ask, answer, ok
}

// solicitation returns the message that asks for the end's hardware address.
func (w *wire) solicitation(c crossing, end End, p packet) rules.Packet {
	from, _ := net.ParseMAC(c.from.MAC)
	to, _ := net.ParseMAC(end.MAC)
	ask := rules.Packet{Proto: w.proto, To: netip.AddrPortFrom(c.to.addr, 0), Neighbour: rules.Solicitation,
		HardFrom: from, HardTo: to}
	local, _ := addresses(w.links, c.netns)
	if c.to.addr.Is6() {
		local = c.from.Addresses
	}
	src := p.src.Addr()
	if c.from.Name != "" && !slices.ContainsFunc(local, func(o netip.Prefix) bool { return o.Addr() == src }) {
		src = netip.Addr{}
		for _, a := range c.from.Addresses {
			if a.Addr().Is4() == c.to.addr.Is4() && (a.Addr().Is4() || a.Addr().IsLinkLocalUnicast()) {
				src = a.Addr()
				break
			}
		}
	}
	ask.From = netip.AddrPortFrom(src, 0)
	return ask
}

// solicitedNode returns the solicited-node multicast address of an address
// (RFC 4291, section 2.7.1).
func solicitedNode(a netip.Addr) netip.Addr {
	b, last := netip.MustParseAddr("ff02::1:ff00:0").As16(), a.As16()
	copy(b[13:], last[13:])
	return netip.AddrFrom16(b)
}

// asks follows a message of address resolution from one end to the other, and
// reports whether it arrives.
func (w *wire) asks(from, to End, ask rules.Packet, stages []stage, p packet) bool {
	ask.Out = from.Name
	ok := true
	if from.Name != "" {
		ask, ok = w.netfilter.allows(from.Netns, sent, ask, p)
	}
	if ok {
		ask, ok = w.netfilter.crosses(from.Netns, stages, ask, p)
	}
	if !ok || to.Name == "" {
		return ok
	}
	ask.In, ask.Out = to.Name, ""
	if len(stages) == 0 || stages[len(stages)-1].netns != to.Netns {
		ask.Mark = rules.Bits{}
	}
	if _, ok = w.netfilter.allows(to.Netns, received, ask, p); !ok {
		return false
	}
	if ask.Neighbour == rules.Solicitation && ask.To.Addr().Is4() && ask.From.Addr().IsValid() && !w.netfilter.renews {
		return w.acceptsARP(to, ask)
	}
	return true
}

// acceptsARP reports whether the receiver accepts an ARP request on the link: the
// kernel looks up the route, as for a packet.
func (w *wire) acceptsARP(to End, ask rules.Packet) bool {
	if w.settings.Setting(to.Netns, "net.ipv4.conf.all.arp_filter") == "1" ||
		w.settings.Setting(to.Netns, plan.LinkSetting("ipv4", to.Name, "arp_filter")) == "1" {
		w.doubt("%s of %s answers ARP only if its routes match (arp_filter)", to.Name, w.name(to.Netns))
	}
	if w.arpIgnore(to) == ignoreOtherSubnets && !slices.ContainsFunc(to.Addresses, func(o netip.Prefix) bool {
		return o.Addr() == ask.To.Addr() && o.Contains(ask.From.Addr())
	}) {
		w.end(NoRoute, "%s of %s does not answer ARP for %s to %s (arp_ignore = 2)", to.Name, w.name(to.Netns),
			ask.To.Addr(),
			ask.From.Addr())
		return false
	}
	q := packet{src: netip.AddrPortFrom(ask.From.Addr(), 0), dst: netip.AddrPortFrom(ask.To.Addr(), 0)}
	_, ok := w.router.route(to.Netns, to.Name, q)
	return ok
}
