package flow

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Explain follows the flow's first packet and its answer. It returns an error if
// an end of the flow cannot be resolved, or the world cannot answer a question.
// It is not an error if the packet is lost: see Explanation.Outcome.
func Explain(w World, f Flow) (Explanation, error) {
	e, err := resolve(w, f)
	if err != nil {
		return Explanation{}, err
	}
	from := map[bool]client{true: local, false: peer}[e.netns == ""]
	if e.in != "" {
		from = lan
	}
	k := newWalker(w, f.Proto, from)
	k.home, k.outside, k.dialled, k.balancer.prefer = e.netns, e.in, e.dst, f.Server
	k.out = Explanation{Flow: f.String(), Proto: f.Proto, Origin: e.netns, Outside: e.in != "" && !e.known, Asked: f}
	if e.in != "" {
		k.out.Origin = e.origin
	}
	if e.also != "" {
		k.doubt("%s is an address of the host and of %s: the flow is followed from the host. Give the name of the sandbox for the other one",
			e.src, k.name(e.also))
	}
	k.follow(e, f.FromPort)
	if k.err == nil && k.continues() {
		k.dataLost(e, f.FromPort)
	}
	if k.err != nil {
		return k.out, fmt.Errorf("explain %s: %w", f, k.err)
	}
	k.balancer.failed(e.dst)
	return k.finish(e.dst), nil
}

// follow follows a packet of the flow from where it begins.
func (k *walker) follow(e ends, port uint16) {
	p := packet{src: netip.AddrPortFrom(e.src, port), dst: e.dst}
	if e.in == "" {
		k.send(e.netns, p)
		return
	}
	k.hop(p, Hop{Kind: Begin, Where: k.name(""), Link: e.in,
		What: fmt.Sprintf("arrives from %s, on the link of the route back to it", e.src),
		Clue: Clue{Hook: "prerouting", Link: e.in}})
	if !k.direct(e.in, p) && k.wire.enters(e.in, &p) {
		k.arrive("", e.in, p)
	}
}

// continues reports whether a connection was established that is followed further: not one
// that a proxy, a virtual service or an eBPF program handles.
func (k *walker) continues() bool {
	return k.out.Outcome == Delivered && k.proto == model.TCP && !k.translated &&
		!slices.ContainsFunc(k.out.Hops, func(h Hop) bool { return h.Kind == Proxy || h.Kind == Connect })
}

// dataLost follows the client's next packet. If it is lost, the connection is established
// but useless, and the verdict says so.
func (k *walker) dataLost(e ends, port uint16) {
	next := newWalker(k.world, k.proto, k.client)
	next.home, next.outside, next.established = k.home, k.outside, true
	next.netfilter.conns, next.wire.learned = k.netfilter.conns, k.wire.learned
	next.follow(e, port)
	if k.fail(next.err) {
		return
	}
	for _, c := range next.out.Caveats {
		k.doubt("%s", c+" (for data)")
	}
	if next.out.Outcome == Delivered || next.out.Uncertain {
		return
	}
	k.out.Outcome, k.out.Process = next.out.Outcome, nil
	k.out.Verdict = "the connection is established, but its data is lost: " + next.out.Verdict
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
	// port is the port of a bridge on which it arrived in its namespace; empty if there is
	// none, or it is unknown. stays is true if the bridge forwards it itself after NAT, still
	// with the hardware address of its sender.
	port, sender string
	stays        bool
	// bound is the link to which the socket of the sender is bound; empty for none.
	bound string
	// choice is the real server that a virtual service of the host chose for it.
	choice *choice
}

// walker follows one packet from one place to the next. Its parts decide what
// happens at each place.
type walker struct {
	*report
	world     World
	proto     model.Proto
	client    client
	router    *router
	netfilter *netfilter
	wire      *wire
	balancer  *balancer
	promises  *promises
	dataPath  *dataPath
	// home is the namespace where the flow began. outside is the link on which it
	// arrived from another machine; empty if it began on this host.
	home, outside string
	// dialled is what the client dialled: the answer must come from there.
	dialled netip.AddrPort
	// returns is the link of a sandbox at whose other end an eBPF program translates
	// the answers; empty if none does.
	returns string
}

// newWalker returns a walker for a client.
func newWalker(w World, proto model.Proto, from client) *walker {
	r := &report{namespaces: w.Namespaces}
	k := &walker{report: r, world: w, proto: proto, client: from}
	k.router = &router{report: r, routes: w.Routes, links: w.Links, settings: w.Settings}
	k.balancer = &balancer{report: r, services: w.Services, proto: proto}
	k.promises = &promises{ports: w.Ports, proto: proto, client: from}
	k.netfilter = &netfilter{report: r, filters: w.Filters, links: w.Links, routes: w.Routes,
		balancer: k.balancer, promises: k.promises, proto: proto, conns: map[string]*conn{},
		locals: map[neighbour]bool{}}
	k.wire = &wire{report: r, links: w.Links, settings: w.Settings, router: k.router, netfilter: k.netfilter,
		proto: proto, learned: map[neighbour]net.HardwareAddr{}}
	k.dataPath = &dataPath{report: r, programs: w.Programs, links: w.Links,
		balancer: k.balancer, promises: k.promises, proto: proto}
	return k
}

// send follows a packet that a process of the namespace sends.
func (k *walker) send(netns string, p packet) {
	if k.ended {
		return
	}
	if netns == "" && !k.reply {
		if p = k.dataPath.connectHook(p); k.ended {
			return
		}
	}
	if !k.reply {
		k.dialled = p.dst
	}
	r, ok := k.router.route(netns, "", p)
	if !ok {
		return
	}
	if !p.src.IsValid() {
		p.src = netip.AddrPortFrom(r.Src, p.src.Port())
		// connect() looks up the IPv4 route again with the source (ip_route_connect).
		if r, ok = k.routeFrom(netns, r, p); !ok {
			return
		}
	}
	if p, r, ok = k.output(netns, r, p); !ok {
		return
	}
	k.router.routed(netns, "", "output", r, p)
	if netns == "" && !k.reply && k.servesIPVS("", p) {
		return
	}
	if r.Type == unix.RTN_LOCAL {
		k.loop(netns, p)
		return
	}
	k.leave(netns, "", r, p)
}

// routeFrom returns the route of a packet whose source the first route has chosen.
func (k *walker) routeFrom(netns string, first rtnl.RouteFound, p packet) (rtnl.RouteFound, bool) {
	if !p.src.Addr().Is4() || first.Type == unix.RTN_LOCAL {
		return first, true
	}
	return k.router.route(netns, "", p)
}

// output follows a packet through the hook output. It looks up the route again if
// NAT, or a mark that a chain of the type route sets, may have changed it.
func (k *walker) output(netns string, r rtnl.RouteFound, p packet) (packet, rtnl.RouteFound, bool) {
	for _, part := range []rules.Part{rules.BeforeNAT, rules.AfterNAT} {
		if part == rules.AfterNAT {
			was := p.dst
			if p = k.netfilter.translate(netns, "output", "", r.Link, p); k.ended {
				return p, r, false
			}
			k.netfilter.rerouted = k.netfilter.rerouted || p.dst != was
		}
		if !k.netfilter.filter(netns, "output", part, "", r.Link, &p, false) {
			return p, r, false
		}
		if k.netfilter.rerouted {
			k.netfilter.rerouted = false
			var ok bool
			if r, ok = k.router.route(netns, "", p); !ok {
				return p, r, false
			}
		}
	}
	return p, r, true
}

// loop follows a packet over loopback to a socket of the same namespace.
func (k *walker) loop(netns string, p packet) {
	if lo, ok := linkOf(k.world.Links, netns, "lo"); ok && k.wire.isDown(End{netns, lo}, p) {
		return
	}
	k.netfilter.mayTranslate(netns, "postrouting", "", "lo", p)
	if k.netfilter.filter(netns, "postrouting", rules.WholeHook, "", "lo", &p, false) && k.wire.overLoopback(netns,
		&p) &&
		k.netfilter.filter(netns, "prerouting", rules.WholeHook, "lo", "", &p, false) {
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
	if l, ok := linkOf(k.world.Links, netns, link); ok && k.wire.enslaved(netns, l) {
		return
	}
	if netns == "" && !k.reply && k.usesEBPF(link, p) {
		return
	}
	if !k.netfilter.filter(netns, "prerouting", rules.BeforeNAT, link, "", &p, false) {
		return
	}
	was := p.dst
	p = k.netfilter.translate(netns, "prerouting", link, "", p)
	if k.ended || !k.netfilter.filter(netns, "prerouting", rules.AfterNAT, link, "", &p, false) {
		return
	}
	r, ok := k.router.route(netns, link, p)
	if !ok {
		k.mayStay(netns, link, was, p)
		return
	}
	if r.Type == unix.RTN_LOCAL {
		k.router.routed(netns, link, "input", r, p)
		k.receive(netns, link, p)
		return
	}
	p.stays = p.dst != was && k.stays(netns, link, r, p)
	if !p.stays && !k.router.forwards(netns, link, p) {
		return
	}
	k.router.routed(netns, link, "forward", r, p)
	if k.netfilter.filter(netns, "forward", rules.WholeHook, link, r.Link, &p, true) {
		k.netfilter.shortcut(netns, link, r.Link, p)
		k.leave(netns, link, r, p)
	}
}

// leave follows a packet out of the namespace along the route.
func (k *walker) leave(netns, in string, r rtnl.RouteFound, p packet) {
	if p.stays { // a bridge names no input at this hook (br_nf_post_routing)
		in = ""
	}
	if !k.netfilter.filter(netns, "postrouting", rules.BeforeNAT, in, r.Link, &p, false) {
		return
	}
	p = k.netfilter.masquerade(netns, in, r, p)
	if !k.netfilter.filter(netns, "postrouting", rules.AfterNAT, in, r.Link, &p, false) {
		return
	}
	next := r.Via
	if !next.IsValid() {
		next = p.dst.Addr()
	}
	l, ok := linkOf(k.world.Links, netns, r.Link)
	if !ok {
		k.end(Unknown, "link %s no longer exists", r.Link)
		return
	}
	if k.wire.isDown(End{netns, l}, p) {
		return
	}
	if k.reply && netns == "" && l.Name == k.outside {
		if k.wire.exits(netns, l, next, &p) && k.comesFromDialled(netns, p) {
			k.returned()
		}
		return
	}
	k.transmit(netns, l, next, p)
}
