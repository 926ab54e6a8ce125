package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// maxHops limits the hops of a packet in a forwarding loop.
const maxHops = 64

// Explain follows the flow's first packet and its answer. It returns an error if
// an end of the flow cannot be resolved, or the world cannot answer a question.
// It is not an error if the packet is lost: see Explanation.Outcome.
func Explain(w World, f Flow) (Explanation, error) {
	e, err := resolve(w, f)
	if err != nil {
		return Explanation{}, err
	}
	k := &walker{World: w, proto: f.Proto, dialled: e.dst, prefer: f.Server, conns: map[string]*conn{}, home: e.netns, outside: e.in}
	k.out = Explanation{Flow: f.String(), Proto: f.Proto, Origin: e.netns, Outside: e.in != "" && !e.known, Asked: f}
	p := packet{src: netip.AddrPortFrom(e.src, f.FromPort), dst: e.dst}
	if e.in != "" {
		k.client, k.out.Origin = lan, e.origin
		k.hop(p, Hop{Kind: Begin, Where: w.Name(""), Link: e.in, What: fmt.Sprintf("arrives from %s, on the link of the route back to it", e.src),
			Clue: Clue{Hook: "prerouting", Link: e.in}})
		k.arrive("", e.in, p)
	} else {
		k.client = map[bool]client{true: local, false: peer}[e.netns == ""]
		k.send(e.netns, p)
	}
	if k.err != nil {
		return k.out, fmt.Errorf("explain %s: %w", f, k.err)
	}
	k.failed(e.dst)
	return k.finish(), nil
}

// client is the kind of client, which decides which promises apply.
type client int

const (
	local client = iota
	lan
	peer
)

// packet is the packet that is followed. Its source port is unknown until
// something is sent.
type packet struct {
	src, dst netip.AddrPort
	dnat     bool
	// mark is the packet's mark in its namespace.
	mark rules.Bits
	// choice is the real server that a virtual service of the host chose for it.
	choice *choice
}

// walker follows one packet.
type walker struct {
	World
	out     Explanation
	proto   model.Proto
	dialled netip.AddrPort
	client  client
	prefer  netip.AddrPort
	back    []Hop // the hops of the answer
	// conns are the flow's entries of connection tracking, by namespace.
	conns map[string]*conn
	// home is the namespace where the flow began. outside is the link on which it
	// arrived from another machine; empty if it began on this host.
	home, outside string
	// translated is true if Fairlead's eBPF programs, or a virtual service, forward
	// the answer.
	translated bool
	// reply is true if the walker follows the answer.
	reply bool
	// rerouted is true if the kernel looks up the route again.
	rerouted bool
	err      error
	ended    bool
}

// hop records a hop.
func (k *walker) hop(p packet, h Hop) {
	h.Number = len(k.out.Hops) + 1
	h.Source, h.Destination = p.src, p.dst
	k.out.Hops = append(k.out.Hops, h)
	k.out.Uncertain = k.out.Uncertain || h.Uncertain
	k.translated = k.translated || h.Kind == EBPF || h.Balance != nil
	if h.Number >= maxHops {
		k.end(Unknown, "the packet is in a forwarding loop")
	}
}

// end ends the walk. Later calls have no effect.
func (k *walker) end(o Outcome, verdict string, args ...any) {
	if !k.ended {
		k.ended = true
		k.out.Outcome, k.out.Verdict = o, fmt.Sprintf(verdict, args...)
	}
}

func (k *walker) fail(err error) bool {
	k.err = errors.Join(k.err, err)
	k.ended = k.ended || err != nil
	return err != nil
}

func (k *walker) finish() Explanation {
	if !k.ended {
		k.end(Unknown, "its further path is unknown")
	}
	if k.out.Outcome == Delivered {
		for _, h := range slices.Backward(k.back) {
			h.Number = len(k.out.Hops) + 1
			k.out.Hops = append(k.out.Hops, h)
		}
	}
	k.out.Destination = k.dialled
	if len(k.out.Hops) > 0 {
		k.out.Source = k.out.Hops[0].Source.Addr()
	}
	return k.out
}

// send follows a packet that a process of the namespace sends.
func (k *walker) send(netns string, p packet) {
	if k.ended {
		return
	}
	if netns == "" && !k.reply {
		if p = k.connectHook(p); k.ended {
			return
		}
	}
	r, ok := k.route(netns, "", p)
	if !ok {
		return
	}
	if !p.src.IsValid() {
		p.src = netip.AddrPortFrom(r.Src, p.src.Port())
	}
	if p, r, ok = k.output(netns, r, p); !ok {
		return
	}
	k.routed(netns, "", "output", r, p)
	if netns == "" && !k.reply && k.servesIPVS("", p) {
		return
	}
	if r.Type == unix.RTN_LOCAL {
		k.loop(netns, r, p)
		return
	}
	k.leave(netns, "", r, p)
}

// output follows a packet through the hook output. It looks up the route again if
// NAT, or a mark that a chain of the type route sets, may have changed it.
func (k *walker) output(netns string, r rtnl.RouteFound, p packet) (packet, rtnl.RouteFound, bool) {
	for _, part := range []rules.Part{rules.BeforeNAT, rules.AfterNAT} {
		if part == rules.AfterNAT {
			was := p.dst
			if p = k.translate(netns, "output", "", r.Link, p); k.ended {
				return p, r, false
			}
			k.rerouted = k.rerouted || p.dst != was
		}
		if !k.filter(netns, "output", part, "", r.Link, &p, false) {
			return p, r, false
		}
		if k.rerouted {
			k.rerouted = false
			var ok bool
			if r, ok = k.route(netns, "", p); !ok {
				return p, r, false
			}
		}
	}
	return p, r, true
}

// loop follows a packet over loopback to a socket of the same namespace.
func (k *walker) loop(netns string, r rtnl.RouteFound, p packet) {
	if lo, ok := linkOf(k, netns, "lo"); ok && k.isDown(End{netns, lo}, p) {
		return
	}
	if k.filter(netns, "postrouting", rules.WholeHook, "", "lo", &p, false) &&
		k.filter(netns, "prerouting", rules.WholeHook, "lo", "", &p, false) {
		k.receive(netns, "lo", p)
	}
}

// arrive follows a packet that arrives on a link.
func (k *walker) arrive(netns, link string, p packet) {
	if k.ended {
		return
	}
	if netns == "" && k.reply && k.translated {
		k.returned()
		return
	}
	if netns == "" && !k.reply && k.usesEBPF(link, p) {
		return
	}
	if !k.filter(netns, "prerouting", rules.BeforeNAT, link, "", &p, false) {
		return
	}
	p = k.translate(netns, "prerouting", link, "", p)
	if k.ended || !k.filter(netns, "prerouting", rules.AfterNAT, link, "", &p, false) {
		return
	}
	r, ok := k.route(netns, link, p)
	if !ok {
		return
	}
	if r.Type == unix.RTN_LOCAL {
		k.routed(netns, link, "input", r, p)
		k.receive(netns, link, p)
		return
	}
	if !k.forwards(netns, link, p) {
		return
	}
	k.routed(netns, link, "forward", r, p)
	if k.filter(netns, "forward", rules.WholeHook, link, r.Link, &p, true) {
		k.leave(netns, link, r, p)
	}
}

// forwards reports whether the namespace forwards packets, and ends the walk if
// it does not. For IPv4, the route lookup already fails in that case.
func (k *walker) forwards(netns, link string, p packet) bool {
	name := "net.ipv6.conf.all.forwarding"
	if p.dst.Addr().Is4() {
		name = "net.ipv4.conf." + link + ".forwarding"
	}
	if k.Setting(netns, name) != "0" || p.dst.Addr().Is6() && k.Setting(netns, "net.ipv6.conf."+link+".force_forwarding") == "1" {
		return true
	}
	k.hop(p, Hop{Kind: Route, Where: k.Name(netns), Link: link, What: "does not forward packets", By: name + " = 0"})
	k.end(NoRoute, "%s does not forward packets (%s = 0)", k.Name(netns), name)
	return false
}

// routed records a routing decision. hook is the hook that the packet passes next.
func (k *walker) routed(netns, in, hook string, r rtnl.RouteFound, p packet) {
	what := fmt.Sprintf("route: out via %s", r.Link)
	clue := Clue{Netns: netns, Hook: hook, Link: in}
	switch {
	case r.Type == unix.RTN_LOCAL:
		what = fmt.Sprintf("route: %s is a local address", p.dst.Addr())
	case r.Via.IsValid():
		what += ", next hop " + r.Via.String()
	}
	if r.Type == unix.RTN_BROADCAST || r.Type == unix.RTN_MULTICAST {
		what += " (broadcast or multicast)"
	}
	link := in
	if in == "" {
		link = r.Link
	}
	k.hop(p, Hop{Kind: Route, Where: k.Name(netns), Link: link, What: what, By: routeText(r), Clue: clue})
}

// leave follows a packet out of the namespace along the route.
func (k *walker) leave(netns, in string, r rtnl.RouteFound, p packet) {
	if !k.filter(netns, "postrouting", rules.BeforeNAT, in, r.Link, &p, false) {
		return
	}
	if p = k.masquerade(netns, in, r, p); !k.filter(netns, "postrouting", rules.AfterNAT, in, r.Link, &p, false) {
		return
	}
	next := r.Via
	if !next.IsValid() {
		next = p.dst.Addr()
	}
	l, ok := linkOf(k, netns, r.Link)
	if !ok {
		k.end(Unknown, "link %s no longer exists", r.Link)
		return
	}
	if k.isDown(End{netns, l}, p) {
		return
	}
	if k.reply && netns == "" && l.Name == k.outside {
		k.returned()
		return
	}
	k.transmit(netns, l, next, p)
}
