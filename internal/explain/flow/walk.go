package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// maxHops bounds a way that leads in circles.
const maxHops = 64

// Explain walks the flow's first packet.
func Explain(w World, f Flow) (Explanation, error) {
	e, err := resolve(w, f)
	if err != nil {
		return Explanation{}, err
	}
	k := &walker{World: w, proto: f.Proto, dialled: e.dst, prefer: f.Server}
	k.out = Explanation{Flow: f.String(), Proto: f.Proto, Origin: e.netns, Outside: e.in != "" && !e.known, Asked: f}
	p := packet{src: netip.AddrPortFrom(e.src, f.FromPort), dst: e.dst}
	if e.in != "" {
		k.client, k.out.Origin = lan, e.origin
		k.hop(p, Hop{Kind: Begin, Where: w.Name(""), Link: e.in, What: fmt.Sprintf("comes in from %s, by the link that leads back there", e.src),
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

// client says whose promises count.
type client int

const (
	local client = iota
	lan
	peer
)

// packet is what travels. A source port is not known before something is sent.
type packet struct {
	src, dst netip.AddrPort
	dnat     bool
	// choice is the real server that a virtual service of the host has given it.
	choice *choice
}

// walker walks one packet.
type walker struct {
	World
	out     Explanation
	proto   model.Proto
	dialled netip.AddrPort
	client  client
	prefer  netip.AddrPort
	back    []Hop // what the answer meets
	err     error
	ended   bool
}

// hop notes a hop.
func (k *walker) hop(p packet, h Hop) {
	h.Number = len(k.out.Hops) + 1
	h.Source, h.Destination = p.src, p.dst
	k.out.Hops = append(k.out.Hops, h)
	k.out.Uncertain = k.out.Uncertain || h.Uncertain
	if h.Number >= maxHops {
		k.end(Unknown, "the packet goes in circles")
	}
}

// end ends the walk. The first end counts.
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
		k.end(Unknown, "nobody can say where it goes from there")
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

// send walks a packet that a process of the namespace sends.
func (k *walker) send(netns string, p packet) {
	if k.ended {
		return
	}
	if netns == "" {
		if p = k.turn(p); k.ended {
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
	if !k.filter(netns, "output", "", r.Link, p, false) {
		return
	}
	was := p.dst
	if p = k.translate(netns, "output", "", r.Link, p); k.ended {
		return
	}
	if p.dst != was {
		if r, ok = k.route(netns, "", p); !ok {
			return
		}
	}
	k.routed(netns, "", "output", r, p)
	if netns == "" && k.servesIPVS("", p) {
		return
	}
	if r.Type == unix.RTN_LOCAL {
		k.receive(netns, "lo", p)
		return
	}
	k.leave(netns, "", r, p)
}

// arrive walks a packet that comes in by a link.
func (k *walker) arrive(netns, link string, p packet) {
	if k.ended {
		return
	}
	if netns == "" && k.steered(link, p) {
		return
	}
	if !k.filter(netns, "prerouting", link, "", p, false) {
		return
	}
	if p = k.translate(netns, "prerouting", link, "", p); k.ended {
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
	if k.filter(netns, "forward", link, r.Link, p, true) {
		k.leave(netns, link, r, p)
	}
}

// forwards reports whether the namespace routes packets of others. IPv4's route
// lookup has said so already.
func (k *walker) forwards(netns, link string, p packet) bool {
	name := "net.ipv6.conf.all.forwarding"
	if p.dst.Addr().Is4() {
		name = "net.ipv4.conf." + link + ".forwarding"
	}
	if k.Setting(netns, name) != "0" {
		return true
	}
	k.hop(p, Hop{Kind: Route, Where: k.Name(netns), Link: link, What: "does not route packets of others", By: name + " = 0"})
	k.end(NoRoute, "%s does not route packets of others (%s = 0)", k.Name(netns), name)
	return false
}

// route asks for the route of the packet, and ends the walk where there is none.
func (k *walker) route(netns, in string, p packet) (kernel.RouteFound, bool) {
	q := kernel.RouteQuery{To: p.dst.Addr(), From: p.src.Addr(), In: in}
	r, err := k.Route(netns, q)
	var none *kernel.ErrNoRoute
	if errors.As(err, &none) {
		h := Hop{Kind: Route, Where: k.Name(netns), Link: in, What: "leads nowhere: " + none.Why, By: queryText(q)}
		k.hop(p, h)
		k.end(NoRoute, "%s leads %s nowhere: %s", k.Name(netns), p.dst.Addr(), none.Why)
		return r, false
	}
	return r, !k.fail(err)
}

// queryText is the question as ip(8) asks it.
func queryText(q kernel.RouteQuery) string {
	text := "ip route get " + q.To.String()
	if q.From.IsValid() {
		text += " from " + q.From.String()
	}
	if q.In != "" {
		text += " iif " + q.In
	}
	return text
}

// routed notes a routing decision; hook is what the packet meets next.
func (k *walker) routed(netns, in, hook string, r kernel.RouteFound, p packet) {
	what := fmt.Sprintf("route: out by %s", r.Link)
	clue := Clue{Netns: netns, Hook: hook, Link: in}
	switch {
	case r.Type == unix.RTN_LOCAL:
		what = fmt.Sprintf("route: %s is its own address", p.dst.Addr())
	case r.Via.IsValid():
		what += ", next hop " + r.Via.String()
	}
	if r.Type == unix.RTN_BROADCAST || r.Type == unix.RTN_MULTICAST {
		what += " (to many)"
	}
	link := in
	if in == "" {
		link = r.Link
	}
	k.hop(p, Hop{Kind: Route, Where: k.Name(netns), Link: link, What: what, By: routeText(r), Clue: clue})
}

// routeText is the entry that decided, as ip(8) lists it.
func routeText(r kernel.RouteFound) string {
	to := "default"
	switch {
	case !r.To.IsValid():
		to = "(cached)"
	case r.To.IsSingleIP():
		to = r.To.Addr().String()
	case r.To.Bits() > 0:
		to = r.To.String()
	}
	text := to
	if r.Type == unix.RTN_LOCAL {
		text = "local " + to
	}
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	if r.Link != "" {
		text += " dev " + r.Link
	}
	if r.Src.IsValid() {
		text += " src " + r.Src.String()
	}
	switch r.Table {
	case unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, 0:
	default:
		text += fmt.Sprintf(" table %d", r.Table)
	}
	return text
}

// leave walks a packet out by the route.
func (k *walker) leave(netns, in string, r kernel.RouteFound, p packet) {
	if !k.filter(netns, "postrouting", in, r.Link, p, false) {
		return
	}
	p = k.masquerade(netns, in, r, p)
	next := r.Via
	if !next.IsValid() {
		next = p.dst.Addr()
	}
	l, ok := linkOf(k, netns, r.Link)
	if !ok {
		k.end(Unknown, "link %s is gone", r.Link)
		return
	}
	if !l.Up {
		k.hop(p, Hop{Kind: Link, Where: k.Name(netns), Link: l.Name, What: "is down"})
		k.end(NoRoute, "%s of %s is down: ip link set %s up", l.Name, k.Name(netns), l.Name)
		return
	}
	k.transmit(netns, l, next, p)
}
