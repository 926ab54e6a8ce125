package flow

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// conn is the flow's entry in the connection tracking of one namespace.
type conn struct {
	// mark is the connection's mark. noTrack is true if the request has no entry, and
	// answerNoTrack if connection tracking ignores the answer.
	mark                   rules.Bits
	noTrack, answerNoTrack bool
	// src and dst are the packet's addresses before NAT, and newSrc and newDst those
	// after NAT. They are zero if NAT changed nothing.
	src, dst, newSrc, newDst netip.AddrPort
}

// conn returns the entry of a namespace.
func (n *netfilter) conn(netns string) *conn {
	c, ok := n.conns[netns]
	if !ok {
		c = &conn{}
		n.conns[netns] = c
	}
	return c
}

// untracked returns whether connection tracking ignores the packets of a direction.
func (c *conn) untracked(reply bool) *bool {
	if reply {
		return &c.answerNoTrack
	}
	return &c.noTrack
}

// orphaned reports whether the packet is an answer that connection tracking does not
// ignore, although it ignored the request.
func (n *netfilter) orphaned(netns string) bool {
	c := n.conn(netns)
	return n.reply && c.noTrack && !c.answerNoTrack
}

// orphanedNAT marks the verdict as uncertain if an answer begins a connection of its own
// and a NAT rule may translate it.
func (n *netfilter) orphanedNAT(netns, hook, in, out string, p packet) {
	if !n.orphaned(netns) || n.proto == model.TCP {
		return
	}
	rs, ok := n.rules(netns)
	if v := rs.Translate(hook, n.packetAt(netns, in, out, p)); ok && (v.Action != rules.Accept || !v.Certain) {
		n.doubt("a NAT rule at %s of %s applies to the answer, because connection tracking ignored the request: %s",
			hook,
			n.name(netns), ruleText(v.By))
	}
}

// untranslate undoes NAT for an answer: the source NAT when it arrives or is sent,
// the destination NAT when it leaves or is delivered.
func (n *netfilter) untranslate(netns, hook string, p packet) packet {
	c := n.conn(netns)
	switch {
	case c.answerNoTrack || c.noTrack:
	case (hook == "prerouting" || hook == "output") && c.newSrc.IsValid() && p.dst.Addr() == c.newSrc.Addr():
		p.dst = c.src
	case (hook == "postrouting" || hook == "input") && c.newDst.IsValid() && p.src == c.newDst:
		p.src = c.dst
	}
	return p
}

// retranslate translates a packet of an established connection as its first one.
func (n *netfilter) retranslate(netns, hook string, p packet) packet {
	c := n.conn(netns)
	switch {
	case c.noTrack || c.answerNoTrack:
	case hook != "postrouting" && c.newDst.IsValid() && p.dst == c.dst:
		p.dst, p.dnat = c.newDst, true
	case hook == "postrouting" && c.newSrc.IsValid():
		p.src = c.newSrc
	}
	return p
}

// dataReturns marks the verdict as uncertain if connection tracking ignored the request of
// a TCP connection, and the server's data may be lost: it begins a connection for data,
// but not for the answer to the request.
func (k *walker) dataReturns(netns string, p packet) {
	ignored := false
	for _, c := range k.netfilter.conns {
		ignored = ignored || c.noTrack && !c.answerNoTrack
	}
	if !ignored || k.proto != model.TCP || k.refusal {
		return
	}
	data := newWalker(k.world, k.proto, k.client)
	data.home, data.outside, data.reply, data.established = k.home, k.outside, true, true
	data.netfilter.conns, data.dialled, data.wire.learned = k.netfilter.conns, k.dialled, k.wire.learned
	data.send(netns, packet{src: p.dst, dst: p.src, bound: p.bound, mark: k.reflected(netns, p)})
	if !k.fail(data.err) && (data.out.Outcome != Delivered || data.out.Uncertain) {
		k.doubt("connection tracking ignored the request, and begins a connection with the server's data: %s",
			data.out.Verdict)
	}
}

// reflected returns the mark of the answer to a packet: that of the packet, if a sysctl says
// so for the connections of a listener, or for refusals (ip-sysctl.rst).
func (k *walker) reflected(netns string, p packet) rules.Bits {
	name := "net.ipv4.tcp_fwmark_accept"
	switch {
	case k.refusal && p.dst.Addr().Is4():
		name = "net.ipv4.fwmark_reflect"
	case k.refusal:
		name = "net.ipv6.fwmark_reflect"
	case k.proto != model.TCP:
		return rules.Bits{}
	}
	if k.world.Settings.Setting(netns, name) != "1" {
		return rules.Bits{}
	}
	return p.mark
}

// answerLost follows the answer back to where the flow began, and reports whether
// it is lost. If it is, answerLost ends the walk. It does not follow answers
// beyond Fairlead's eBPF programs, virtual services or another machine.
func (k *walker) answerLost(netns string, p packet) bool {
	back := newWalker(k.world, k.proto, k.client)
	back.home, back.outside, back.reply, back.translated = k.home, k.outside, true, k.translated
	back.refusal, back.wire.learned = k.refusal, k.wire.learned
	back.netfilter.conns, back.dialled = k.netfilter.conns, k.dialled
	back.send(netns, packet{src: p.dst, dst: p.src, bound: p.bound, mark: k.reflected(netns, p)})
	if back.err != nil {
		return k.fail(back.err)
	}
	for _, c := range back.out.Caveats {
		k.doubt("%s", c+" (for the answer)")
	}
	for _, n := range back.out.Notes {
		if !slices.Contains(k.out.Notes, n) {
			k.out.Notes = append(k.out.Notes, n)
		}
	}
	k.out.Uncertain = k.out.Uncertain || back.out.Uncertain
	if back.out.Outcome == Delivered {
		k.dataReturns(netns, p)
		return false
	}
	h := Hop{Kind: Answer, Where: k.name(netns), What: "the answer is lost: " + back.out.Verdict,
		Uncertain: back.out.Uncertain}
	if n := len(back.out.Hops); n > 0 {
		last := back.out.Hops[n-1]
		h.Where, h.Link, h.By = last.Where, last.Link, last.By
	}
	k.hop(p, h)
	o := back.out.Outcome
	if o != Dropped && o != Unknown {
		o = NoRoute
	}
	k.end(o, "it reaches %s, but the answer is lost: %s", k.name(netns), back.out.Verdict)
	return true
}
