package flow

import (
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
)

// target is the interface that a frame is for: the one with the next hop's
// address, or with the hardware address of a permanent neighbour entry.
type target struct {
	addr netip.Addr
	mac  net.HardwareAddr // nil if the address must be resolved
}

// stage is a place on a frame's path where filters may drop it: a link, or a hook
// of a bridge.
type stage struct {
	netns string
	// hook is ingress or egress of the link, or a hook of the bridge.
	hook, link string
	// in and out are the bridge's ports; bridge is its name, for br_netfilter.
	bridge, in, out string
}

// crossing is a frame that is sent from a link, with the stages that it passes.
type crossing struct {
	netns  string
	from   rtnl.NetLink
	to     target
	stages []stage
}

// begin begins a crossing. If the sender has a permanent neighbour entry for the
// next hop, the frame is for that hardware address.
func (k *walker) begin(netns string, l rtnl.NetLink, next netip.Addr) crossing {
	c := crossing{netns: netns, from: l, to: target{addr: next}, stages: []stage{{netns: netns, hook: "egress", link: l.Name}}}
	if e, ok := k.entry(netns, l.Name, next); ok && e.Permanent {
		c.to.mac = e.MAC
	}
	return c
}

// entry returns a namespace's valid entry for a neighbour.
func (k *walker) entry(netns, link string, a netip.Addr) (rtnl.NeighbourEntry, bool) {
	list, _, err := k.Neighbours(netns)
	if k.fail(err) {
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
func (k *walker) isFor(e End, t target) bool {
	if t.mac != nil {
		return e.MAC == t.mac.String()
	}
	return k.answersFor(e, t.addr)
}

// land ends a crossing at the link that the frame is for: address resolution and
// the frame itself pass the filters of all stages. It reports whether the frame
// arrives, and ends the walk if it does not.
func (k *walker) land(c crossing, end End, p *packet) bool {
	if k.ended || !k.resolved(c, end, *p) {
		return false
	}
	netns := c.netns
	for _, s := range append(slices.Clone(c.stages), stage{netns: end.Netns}) {
		if s.netns != netns { // the kernel clears the mark
			netns, p.mark = s.netns, rules.Bits{}
		}
		if s.hook == "" {
			break
		}
		frame := k.packetAt(s.netns, s.in, s.out, *p)
		frame.HardFrom, _ = net.ParseMAC(c.from.MAC)
		frame.HardTo, _ = net.ParseMAC(end.MAC)
		after, ok := k.stagePasses(s, frame, *p)
		if !ok {
			return false
		}
		p.mark = after.Mark
	}
	return true
}

// resolved reports whether the sender can resolve the hardware address of the
// end, and ends the walk if it cannot.
func (k *walker) resolved(c crossing, end End, p packet) bool {
	v6 := c.to.addr.Is6()
	if c.to.mac != nil || c.from.Owner != "" && end.Owner != "" {
		return true
	}
	name := map[bool]string{false: "ARP", true: "Neighbor Discovery"}[v6]
	for _, e := range []End{{c.netns, c.from}, end} {
		if e.NoARP {
			k.hop(p, Hop{Kind: Link, Where: k.Name(e.Netns), Link: e.Name,
				What: "does not resolve addresses: " + name + " is off on this link", By: "ip link set dev " + e.Name + " arp on"})
			k.end(NoRoute, "%s of %s does not use %s (arp off), so %s cannot be resolved", e.Name, k.Name(e.Netns), name, c.to.addr)
			return false
		}
	}
	if e, ok := k.entry(c.netns, c.from.Name, c.to.addr); ok {
		if e.MAC.String() != end.MAC {
			k.doubt("%s has an outdated neighbour entry: %s is %s, but %s has that address: packets are lost until the entry expires",
				k.Name(c.netns), c.to.addr, e.MAC, end.MAC)
		}
		return true // the address is already resolved
	}
	ask := k.solicitation(c, end, p)
	answer := ask
	answer.From, answer.To, answer.Neighbour = netip.AddrPortFrom(c.to.addr, 0), ask.From, rules.Advertisement
	answer.HardFrom, answer.HardTo = ask.HardTo, ask.HardFrom
	ask.HardTo = nil // broadcast or multicast
	if v6 {
		ask.To = netip.AddrPortFrom(solicitedNode(c.to.addr), 0)
	}
	sender := End{c.netns, c.from}
	return k.asks(sender, end, ask, c.stages, p) && k.asks(end, sender, answer, reversed(c.stages), p)
}

// solicitation returns the message that asks for the end's hardware address.
func (k *walker) solicitation(c crossing, end End, p packet) rules.Packet {
	from, _ := net.ParseMAC(c.from.MAC)
	to, _ := net.ParseMAC(end.MAC)
	ask := rules.Packet{Proto: k.proto, To: netip.AddrPortFrom(c.to.addr, 0), Neighbour: rules.Solicitation, HardFrom: from, HardTo: to}
	local, _ := addresses(k, c.netns)
	if c.to.addr.Is6() {
		local = c.from.Addresses
	}
	src := p.src.Addr()
	if !slices.ContainsFunc(local, func(o netip.Prefix) bool { return o.Addr() == src }) {
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
func (k *walker) asks(from, to End, ask rules.Packet, stages []stage, p packet) bool {
	out, in := ask, ask
	out.Out, in.In = from.Name, to.Name
	if !k.allows(from.Netns, "output", out, p) || ask.To.Addr().Is6() && !k.allows(from.Netns, "postrouting", out, p) {
		return false
	}
	for _, s := range stages {
		if _, ok := k.stagePasses(s, ask, p); !ok {
			return false
		}
	}
	if ask.To.Addr().Is6() && !k.allows(to.Netns, "prerouting", in, p) || !k.allows(to.Netns, "input", in, p) {
		return false
	}
	if ask.Neighbour == rules.Solicitation && ask.To.Addr().Is4() && ask.From.Addr().IsValid() {
		return k.acceptsARP(to, ask, p)
	}
	return true
}

// acceptsARP reports whether the receiver accepts an ARP request on the link: the
// kernel looks up the route, as for a packet.
func (k *walker) acceptsARP(to End, ask rules.Packet, p packet) bool {
	if k.Setting(to.Netns, "net.ipv4.conf.all.arp_filter") == "1" || k.Setting(to.Netns, "net.ipv4.conf."+to.Name+".arp_filter") == "1" {
		k.doubt("%s of %s answers ARP only if its routes match (arp_filter)", to.Name, k.Name(to.Netns))
	}
	q := packet{src: netip.AddrPortFrom(ask.From.Addr(), 0), dst: netip.AddrPortFrom(ask.To.Addr(), 0)}
	_, ok := k.route(to.Netns, to.Name, q)
	return ok
}

// allows reports whether the rules of a hook accept a message of address
// resolution, and ends the walk if they do not.
func (k *walker) allows(netns, hook string, ask rules.Packet, p packet) bool {
	rs, ok := k.rules(netns)
	return ok && k.judged(rs.Filter(hook, ask), netns, firstOf(ask.In, ask.Out), hook, ask, p)
}

// judged records the verdict for a frame, and reports whether the frame passes.
func (k *walker) judged(v rules.Verdict, netns, link, hook string, frame rules.Packet, p packet) bool {
	by := ruleText(v.By)
	if v.Policy {
		by = policyText(v.By)
	}
	lost := v.Action == rules.Drop || v.Action == rules.Reject
	what, verdict := "dropped", "dropped at "+hook+" of "+link+" in "+k.Name(netns)
	if frame.Neighbour != rules.NoNeighbour {
		name := map[bool]string{true: "ARP", false: "Neighbor Discovery"}[frame.To.Addr().Is4()]
		what, verdict = name+" is dropped, so the address cannot be resolved", name+" is "+verdict
	}
	switch {
	case lost && v.Certain:
		k.hop(p, Hop{Kind: Filter, Where: k.Name(netns), Link: link, What: hook + ": " + what, By: by})
		k.end(Dropped, "%s: %s", verdict, by)
		return false
	case !v.Certain:
		k.doubt("rules at %s of %s in %s have conditions that Fairlead cannot evaluate: %s", hook, link, k.Name(netns), doubtful(v))
	}
	return true
}

// stagePasses reports whether a frame passes the filters of a stage, and returns
// the frame as the filters changed it.
func (k *walker) stagePasses(s stage, frame rules.Packet, p packet) (rules.Packet, bool) {
	rs, ok := k.rules(s.netns)
	if !ok {
		return frame, false
	}
	if s.bridge != "" {
		frame.In, frame.Out = s.in, s.out
		v := rs.Frame(s.hook, frame)
		return v.Packet, k.judged(v, s.netns, firstOf(s.in, s.out), "the bridge's "+s.hook, frame, p)
	}
	all, err := k.Foreign(s.netns)
	if k.fail(err) {
		return frame, false
	}
	for _, f := range all {
		if f.Link == s.link && f.Egress == (s.hook == "egress") {
			k.doubt("%s at %s of %s is not followed: it may drop, change or redirect packets", f.What, s.link, k.Name(s.netns))
		}
	}
	frame.In = map[bool]string{true: s.link}[s.hook == "ingress"]
	frame.Out = map[bool]string{true: s.link}[s.hook == "egress"]
	v := rs.Device(s.hook, s.link, frame)
	return v.Packet, k.judged(v, s.netns, s.link, s.hook, frame, p)
}

// reversed returns the stages that the answer passes.
func reversed(stages []stage) []stage {
	var back []stage
	swap := map[string]string{"ingress": "egress", "egress": "ingress", "input": "output", "output": "input",
		"prerouting": "postrouting", "postrouting": "prerouting", "forward": "forward"}
	for _, s := range slices.Backward(stages) {
		s.hook, s.in, s.out = swap[s.hook], s.out, s.in
		back = append(back, s)
	}
	return back
}
