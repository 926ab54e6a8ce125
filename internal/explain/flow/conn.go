package flow

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rules"
)

// conn is the flow's entry in the connection tracking of one namespace.
type conn struct {
	// mark is the connection's mark. noTrack is true if there is no entry.
	mark    rules.Bits
	noTrack bool
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

// untranslate undoes NAT for an answer: the source NAT when it arrives or is sent,
// the destination NAT when it leaves or is delivered.
func (n *netfilter) untranslate(netns, hook string, p packet) packet {
	c := n.conn(netns)
	switch {
	case (hook == "prerouting" || hook == "output") && c.newSrc.IsValid() && p.dst.Addr() == c.newSrc.Addr():
		p.dst = c.src
	case (hook == "postrouting" || hook == "input") && c.newDst.IsValid() && p.src == c.newDst:
		p.src = c.dst
	}
	return p
}

// answerLost follows the answer back to where the flow began, and reports whether
// it is lost. If it is, answerLost ends the walk. It does not follow answers
// beyond Fairlead's eBPF programs, virtual services or another machine.
func (k *walker) answerLost(netns string, p packet) bool {
	back := newWalker(k.world, k.proto, k.client)
	back.home, back.outside, back.reply, back.translated = k.home, k.outside, true, k.translated
	back.netfilter.conns = k.netfilter.conns
	back.send(netns, packet{src: p.dst, dst: p.src})
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
