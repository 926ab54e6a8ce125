package ports

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// reach evaluates the rules for packets to the port, from each place from which
// they may come.
func (b *builder) reach(p Port) Reach {
	var r Reach
	at := p.Addresses[0]
	v4 := at.Is4()
	any := at.IsUnspecified()
	loopback := netip.IPv6Loopback()
	if v4 {
		loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if any || at.IsLoopback() {
		r.Loopback, r.asked.loopback = b.sure(b.fromHost(p, loopback), p, fromLoopback, loopback), true
	}
	if at.IsLoopback() {
		return r
	}
	uplink, address := b.uplink(v4)
	if !any {
		uplink, address = b.arrivalLink(at, uplink), at
	}
	if address.IsValid() {
		r.Host, r.asked.host = b.sure(b.fromHost(p, address), p, fromHost, address), true
	}
	for _, l := range b.Links {
		if gateway, ok := addressOn(l, v4); ok && l.Kind == "bridge" && l.Name != uplink {
			to := gateway
			if !any {
				to = at
			}
			client := b.neighbour(gateway)
			came, _ := b.arrives(p, l.Name, client, to)
			came = b.sureOfAll(came, p, client, to)
			r.Containers, r.asked.containers = max(r.Containers, came), true
		}
	}
	if uplink != "" && address.IsValid() {
		r.asked.lan = true
		var by rules.Verdict
		r.LAN, by = b.arrives(p, uplink, netip.Addr{}, address)
		r.Firewall = b.firewall(p, uplink, address, r.LAN)
		r.LAN = b.sure(r.LAN, p, b.client(uplink, address), address)
		if by.By.Rule.Action != rules.None {
			r.Decided = by.By.Table + " " + by.By.Chain + ": " + by.By.Rule.String()
		}
	}
	return r
}

// arrivalLink returns the link on which machines of the LAN reach one of the host's
// addresses: the link with the address, or the uplink if that is a bridge, a link to a
// sandbox or loopback.
func (b *builder) arrivalLink(at netip.Addr, uplink string) string {
	name := cmp.Or(b.LinkWith(at), b.LinkTo(at))
	inner := slices.ContainsFunc(b.Links, func(l inspect.InsideLink) bool {
		return l.Name == name && (l.Kind == "bridge" || l.Kind == "loopback" || l.Owner != "")
	})
	if inner && uplink != "" {
		return uplink
	}
	return name
}

// limit lowers the reach that the rules alone cannot prove, because they do not show
// whether a process answers at the port. In a sandbox that has ended, none does. If
// the attachment of a port that Fairlead publishes is unknown, nothing is certain.
func (p *Port) limit() {
	r := &p.Reach
	switch {
	case p.Ended:
		*r = Reach{asked: r.asked}
	case p.Sandbox == "" && p.published():
		r.doubt()
	}
}

// doubt makes each place that reaches the port uncertain.
func (r *Reach) doubt() {
	for _, a := range []*rules.Answer{&r.Loopback, &r.Host, &r.Containers, &r.LAN} {
		*a = min(*a, rules.Maybe)
	}
}

// published reports whether Fairlead publishes the port of a sandbox.
func (p Port) published() bool {
	return p.carried(func(c model.Carrier) bool { return c != model.CarrierHooks })
}

// carried reports whether Fairlead publishes the port with a mode whose carrier is such a one.
func (p Port) carried(is func(model.Carrier) bool) bool {
	return slices.ContainsFunc(p.Modes, func(m Mode) bool {
		mode, known := paths.Mode(model.Via(m))
		return known && is(mode.Carrier())
	})
}

// fromHost evaluates the rules for a packet of the host's own processes.
func (b *builder) fromHost(p Port, to netip.Addr) rules.Answer {
	if p.carried(func(c model.Carrier) bool { return c == model.CarrierPrograms }) {
		return rules.Yes
	}
	packet := b.packet(p, to)
	packet.From = netip.AddrPortFrom(to, 0)
	packet.Out = "lo"
	v := b.index.For(packet.To.Port()).Translate("output", packet)
	if v.Action == rules.Redirect || v.Action == rules.DNAT && b.leaves(to, v.By.Rule.To) {
		return certainty(v.Certain)
	}
	if !p.accepts(cmp.Or(b.LinkWith(to), "lo")) { // for sockets, it arrives on the link with its address
		return rules.No
	}
	packet.In, packet.Out = "lo", ""
	return through(b.filter("input", packet))
}

// leaves reports whether a packet that was for to may leave the host after NAT.
// Packets from 127.0.0.0/8 may do so only if the link's route_localnet is 1.
func (b *builder) leaves(to, translated netip.Addr) bool {
	if !to.IsLoopback() || to.Is6() || b.local(translated) {
		return true
	}
	return b.Settings[facts.RouteLocalnet("all")] == "1" || b.Settings[facts.RouteLocalnet(b.LinkTo(translated))] == "1"
}

// arrives evaluates the rules for a packet that arrives on a link. It also returns
// the verdict that decided. An invalid from means any client.
func (b *builder) arrives(p Port, link string, from, to netip.Addr) (rules.Answer, rules.Verdict) {
	if slices.Contains(p.Modes, EBPF) { // eBPF programs run before all rules
		return rules.Yes, rules.Verdict{}
	}
	packet := b.packet(p, to)
	packet.In, packet.From, packet.Behind = link, netip.AddrPortFrom(from, 0), true
	v := b.index.For(packet.To.Port()).Translate("prerouting", packet)
	switch v.Action {
	case rules.DNAT:
		translated := packet
		translated.Translated, translated.Local = true, b.local(v.By.Rule.To)
		port := packet.To.Port()
		if first := v.By.Rule.ToPorts.First; first != 0 {
			port = first
		}
		translated.To = netip.AddrPortFrom(v.By.Rule.To, port)
		hook := "input"
		if !translated.Local {
			hook, translated.Out = "forward", b.LinkTo(translated.To.Addr())
			if !b.forwards(translated) {
				return rules.No, v
			}
		}
		f := b.filter(hook, translated)
		return min(through(f), certainty(v.Certain)), f
	case rules.Redirect:
		packet.To = netip.AddrPortFrom(to, v.By.Rule.ToPorts.First)
		f := b.filter("input", packet)
		return through(f), f
	default:
		if !p.accepts(link) {
			return rules.No, v
		}
	}
	f := b.filter("input", packet)
	return through(f), f
}

// forwards reports whether the host forwards the packet, and its answer, from link to
// link.
func (b *builder) forwards(p rules.Packet) bool {
	v4 := p.To.Addr().Is4()
	return b.Forwards(p.In, v4) && (p.Out == "" || b.Forwards(p.Out, v4))
}

// firewall returns what the rules for the host's own ports do, or would do, with
// packets from the LAN.
func (b *builder) firewall(p Port, link string, to netip.Addr, comes rules.Answer) Firewall {
	packet := b.packet(p, to)
	packet.In = link
	f := b.filter("input", packet)
	switch {
	case f.Action == rules.Accept && f.Certain &&
		(f.By.Table == "" || f.Policy || f.By.Table == "inet "+plan.GuardTable):
		return Open
	case f.Action == rules.Accept && f.Certain:
		return Lets
	case comes == rules.Yes:
		return Bypassed
	case !f.Certain:
		return Perhaps
	}
	return Drops
}

func (b *builder) filter(hook string, p rules.Packet) rules.Verdict {
	return b.index.For(p.To.Port()).Filter(hook, p)
}

func (b *builder) packet(p Port, to netip.Addr) rules.Packet {
	return rules.Packet{Proto: p.Proto, To: netip.AddrPortFrom(to, p.Ports.First), Local: true}
}

func certainty(certain bool) rules.Answer {
	if certain {
		return rules.Yes
	}
	return rules.Maybe
}

// through returns whether a packet with this verdict passes.
func through(v rules.Verdict) rules.Answer {
	switch {
	case !v.Certain:
		return rules.Maybe
	case v.Action == rules.Drop || v.Action == rules.Reject:
		return rules.No
	}
	return rules.Yes
}

// uplink returns the link of the default route and the host's address on it. If
// there is none, it returns the first link that is neither loopback nor a bridge
// of containers.
func (b *builder) uplink(v4 bool) (string, netip.Addr) {
	for _, r := range b.Routes {
		if r.To.Bits() == 0 && r.To.Addr().Is4() == v4 {
			if a, ok := b.addressOf(r.Link, v4); ok {
				return r.Link, a
			}
		}
	}
	for _, l := range b.Links {
		if a, ok := addressOn(l, v4); ok && l.Up && l.Kind != "loopback" && l.Kind != "bridge" && l.Owner == "" {
			return l.Name, a
		}
	}
	return "", netip.Addr{}
}

func (b *builder) addressOf(link string, v4 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(b.Links, func(l inspect.InsideLink) bool { return l.Name == link })
	if i < 0 {
		return netip.Addr{}, false
	}
	return addressOn(b.Links[i], v4)
}

func addressOn(l inspect.InsideLink, v4 bool) (netip.Addr, bool) {
	for _, p := range l.Addresses {
		if p.Addr().Is4() == v4 {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}
