package flow

import (
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
)

// enters follows a packet of another machine onto a link of the host: the machine
// resolves the host's address, and then the packet passes the link's rules. It reports
// whether the packet arrives, and ends the walk if it does not.
func (w *wire) enters(link string, p *packet) bool {
	l, ok := linkOf(w.links, "", link)
	if !ok || l.Kind == "loopback" {
		return true
	}
	end := End{"", l}
	if to, ok := w.asked(end, p.dst.Addr()); ok && !w.answersOutside(end, to, *p) {
		return false
	}
	frame := w.netfilter.packetAt("", link, "", *p)
	frame.HardTo, _ = net.ParseMAC(l.MAC)
	after, ok := w.netfilter.stagePasses(stage{hook: "ingress", link: link}, frame, *p)
	p.mark = after.Mark
	return ok
}

// asked returns the address of the host that a machine on the link resolves to reach
// another: itself, if the link has it, or else the link's address.
func (w *wire) asked(e End, to netip.Addr) (netip.Addr, bool) {
	if e.Has(to) {
		return to, true
	}
	i := slices.IndexFunc(e.Addresses, func(o netip.Prefix) bool { return o.Addr().Is4() == to.Is4() })
	if i < 0 {
		return to, false
	}
	return e.Addresses[i].Addr(), true
}

// answersOutside reports whether the host answers when the packet's sender, or its
// router, resolves an address on the link. It ends the walk if the host does not.
func (w *wire) answersOutside(e End, to netip.Addr, p packet) bool {
	if to.Is4() && !e.NoARP && w.arpIgnore(e) == ignoreAll {
		w.doubt("%s of %s answers no ARP (arp_ignore = 8): only machines that know its hardware address otherwise reach it",
			e.Name, w.name(""))
		return true
	}
	own, _ := net.ParseMAC(e.MAC)
	ask := rules.Packet{Proto: w.proto, From: netip.AddrPortFrom(p.src.Addr(), 0), To: netip.AddrPortFrom(to, 0),
		Neighbour: rules.Solicitation}
	answer := ask
	answer.From, answer.To, answer.Neighbour, answer.HardFrom = ask.To, ask.From, rules.Advertisement, own
	if to.Is6() {
		ask.To = netip.AddrPortFrom(solicitedNode(to), 0)
	}
	here := []stage{{hook: "ingress", link: e.Name}}
	ask, ok := w.netfilter.crosses("", here, ask, p)
	ask.In, answer.Out = e.Name, e.Name
	if ok {
		_, ok = w.netfilter.allows("", received, ask, p)
	}
	ok = ok && (to.Is6() || w.acceptsARP(e, ask))
	if ok {
		answer, ok = w.netfilter.allows("", sent, answer, p)
	}
	if ok {
		_, ok = w.netfilter.crosses("", reversed(here), answer, p)
	}
	return ok
}

// exits follows a packet out of the host via a link, towards a machine of which nothing
// is known. It reports whether the packet leaves, and ends the walk if it does not.
func (w *wire) exits(netns string, l rtnl.NetLink, next netip.Addr, p *packet) bool {
	frame := w.netfilter.packetAt(netns, "", l.Name, *p)
	frame.HardFrom, _ = net.ParseMAC(l.MAC)
	list, _, err := w.links.Neighbours(netns)
	if w.fail(err) {
		return false
	}
	for _, e := range list {
		switch {
		case e.Link != l.Name || e.Address != next:
		case e.Failed:
			w.doubt("%s could not resolve %s on %s when it last tried (ip neigh: FAILED)", w.name(netns), next, l.Name)
		case e.Permanent && l.Kind != "loopback":
			w.doubt("%s has a permanent neighbour entry: whether %s really is %s is not known", w.name(netns), next,
				e.MAC)
			frame.HardTo = e.MAC
		case e.Valid:
			frame.HardTo = e.MAC
		}
	}
	after, ok := w.netfilter.stagePasses(stage{netns: netns, hook: "egress", link: l.Name}, frame, *p)
	p.mark = after.Mark
	return ok
}

// overLoopback follows a packet through the rules at the loopback link. It reports whether
// the packet passes, and ends the walk if it does not.
func (w *wire) overLoopback(netns string, p *packet) bool {
	for _, hook := range []string{"egress", "ingress"} {
		after, ok := w.netfilter.stagePasses(stage{netns: netns, hook: hook, link: "lo"},
			w.netfilter.packetAt(netns, "", "", *p), *p)
		if !ok {
			return false
		}
		p.mark = after.Mark
	}
	return true
}

// comesFromDialled reports whether an answer comes from the address that the client
// dialled, and ends the walk if it does not: the client ignores such an answer.
func (k *walker) comesFromDialled(netns string, p packet) bool {
	if k.translated || !k.dialled.IsValid() || p.src == k.dialled {
		return true
	}
	k.end(NoRoute, "the answer reaches %s from %s, not from %s, which the client dialled: no rule translates it back",
		k.name(netns), p.src, k.dialled)
	return false
}

// mayTranslate marks the verdict as uncertain if source NAT that is not followed may apply to
// a packet: over loopback, and at the hook input.
func (n *netfilter) mayTranslate(netns, hook, in, out string, p packet) {
	rs, ok := n.rules(netns)
	if !ok || n.reply || n.established {
		return
	}
	if v := rs.Translate(hook, n.packetAt(netns, in, out, p)); v.Action != rules.Accept || !v.Certain {
		n.doubt("source NAT at %s of %s is not followed over loopback or for packets to a socket: %s", hook,
			n.name(netns), ruleText(v.By))
	}
}
