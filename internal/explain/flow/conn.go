package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rules"
)

// conn is the flow's entry in the connection tracking of one namespace.
type conn struct {
	// mark is the connection's mark; untracked says that there is no entry.
	mark    rules.Bits
	noTrack bool
	// src and dst were the packet's before NAT, and newSrc and newDst are what NAT
	// made of them; the zero values where it did nothing.
	src, dst, newSrc, newDst netip.AddrPort
}

// conn returns the entry of a namespace.
func (k *walker) conn(netns string) *conn {
	c, ok := k.conns[netns]
	if !ok {
		c = &conn{}
		k.conns[netns] = c
	}
	return c
}

// untranslate undoes NAT for an answer: the source NAT where it comes in or is
// sent, the destination NAT where it goes out or is delivered.
func (k *walker) untranslate(netns, hook string, p packet) packet {
	c := k.conn(netns)
	switch {
	case (hook == "prerouting" || hook == "output") && c.newSrc.IsValid() && p.dst.Addr() == c.newSrc.Addr():
		p.dst = c.src
	case (hook == "postrouting" || hook == "input") && c.newDst.IsValid() && p.src == c.newDst:
		p.src = c.dst
	}
	return p
}

// doubt says that the verdict is not certain, and why.
func (k *walker) doubt(why string, args ...any) {
	k.out.Uncertain = true
	if text := fmt.Sprintf(why, args...); !slices.Contains(k.out.Caveats, text) {
		k.out.Caveats = append(k.out.Caveats, text)
	}
}

// answerLost walks the answer back to where the flow began, and reports whether
// it is lost. It ends the walk then. Answers that our eBPF programs, virtual
// services or another machine send on are not followed further.
func (k *walker) answerLost(netns string, p packet) bool {
	back := &walker{World: k.World, proto: k.proto, client: k.client, reply: true, home: k.home, outside: k.outside, translated: k.translated, conns: k.conns}
	back.send(netns, packet{src: p.dst, dst: p.src})
	if back.err != nil {
		return k.fail(back.err)
	}
	for _, c := range back.out.Caveats {
		k.doubt("%s", c+" (on the way back)")
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
	h := Hop{Kind: Answer, Where: k.Name(netns), What: "the answer is lost: " + back.out.Verdict, Uncertain: back.out.Uncertain}
	if n := len(back.out.Hops); n > 0 {
		last := back.out.Hops[n-1]
		h.Where, h.Link, h.By = last.Where, last.Link, last.By
	}
	k.hop(p, h)
	o := back.out.Outcome
	if o != Dropped && o != Unknown {
		o = NoRoute
	}
	k.end(o, "it reaches %s, and the answer is lost: %s", k.Name(netns), back.out.Verdict)
	return true
}

// returned ends the walk of an answer that has come back.
func (k *walker) returned() { k.end(Delivered, "the answer comes back") }
