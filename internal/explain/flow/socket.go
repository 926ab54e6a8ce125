package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// receive follows a packet through the hook input to the socket that accepts it.
func (k *walker) receive(netns, in string, p packet) {
	if !k.netfilter.filter(netns, "input", rules.WholeHook, in, "", &p, false) {
		return
	}
	k.netfilter.mayTranslate(netns, "input", in, "", p)
	if k.established {
		k.end(Delivered, "the packet reaches %s", k.name(netns))
		return
	}
	if k.reply {
		if netns != k.home || k.outside != "" {
			k.end(NoRoute, "it arrives in %s, which did not send the request", k.name(netns))
		}
		if k.comesFromDialled(netns, k.netfilter.untranslate(netns, "input", p)) {
			k.returned()
		}
		return
	}
	if netns == "" && k.servesIPVS(in, p) {
		return
	}
	all, err := k.world.Ports.Listeners(netns)
	if k.fail(err) {
		return
	}
	l, ok := k.takes(all, k.arrivalLink(netns, in, p.dst.Addr()), p.dst)
	if !ok {
		k.hop(p, Hop{Kind: Delivery, Where: k.name(netns), Link: in,
			What: fmt.Sprintf("no socket listens on %s/%s", p.dst, k.proto),
			Clue: Clue{Netns: netns, Hook: "input", Link: in}})
		k.refusal = true
		if !k.returnPath(netns, in, p) {
			return
		}
		k.end(Refused, "no socket listens on %s/%s in %s", p.dst, k.proto, k.name(netns))
		return
	}
	p.bound = l.Link
	if k.refuses(netns, in, l, p) || netns == "" && k.proxied(in, l, p) {
		return
	}
	h := Hop{Kind: Delivery, Where: k.name(netns), Link: in, What: "the socket of " + l.Process.String(),
		By:   socketText(l),
		Clue: Clue{Netns: netns, Hook: "input", Link: in, Connected: k.proto == model.TCP}}
	if netns == "" {
		k.dataPath.granted(&h, p.dst)
	}
	k.hop(p, h)
	if !k.returnPath(netns, in, p) {
		return
	}
	k.out.Process = &Process{PID: l.Process.PID, Command: l.Process.Command, Container: l.Process.Container,
		Where: k.name(netns)}
	k.end(Delivered, "delivered to %s in %s", l.Process, k.name(netns))
}

func socketText(l sockdiag.Listener) string {
	state := "listening"
	if l.Proto == model.UDP {
		state = "bound"
	}
	if l.Link == "" {
		return fmt.Sprintf("%s on %s/%s", state, l.At, l.Proto)
	}
	addr := l.At.Addr().String()
	if l.At.Addr().Is6() {
		addr = "[" + addr + "]"
	}
	return fmt.Sprintf("%s on %s%%%s:%d/%s", state, addr, l.Link, l.At.Port(), l.Proto)
}

// arrivalLink returns the link on which a packet arrives according to sockets. For a
// packet over loopback, that is the link with its destination (ip_route_output_key,
// ip6_rcv_core).
func (k *walker) arrivalLink(netns, in string, to netip.Addr) string {
	links, err := k.world.Links.Links(netns)
	if k.fail(err) || in != "lo" {
		return in
	}
	for _, l := range links {
		if hasAddress(l, to) {
			return l.Name
		}
	}
	return in
}

// refuses reports whether the socket does not accept the packet, and then ends the walk.
func (k *walker) refuses(netns, in string, l sockdiag.Listener, p packet) bool {
	if l.Proto == model.TCP && l.Waiting > l.Backlog {
		k.hop(p, Hop{Kind: Delivery, Where: k.name(netns), Link: in, By: socketText(l),
			What: fmt.Sprintf("the accept queue of %s is full: %d connections wait, of at most %d", l.Process,
				l.Waiting,
				l.Backlog+1), Clue: Clue{Netns: netns, Hook: "input", Link: in}})
		k.end(Dropped, "the accept queue of %s in %s is full: the process does not accept connections fast enough",
			l.Process, k.name(netns))
		return true
	}
	if ttl := k.world.Ports.MinTTL(l, p.dst.Addr().Is4()); l.Proto == model.TCP && ttl > 1 {
		k.doubt("the socket of %s in %s accepts only packets with a TTL of at least %d (IP_MINTTL)", l.Process,
			k.name(netns), ttl)
	}
	k.filtered(netns, l)
	return false
}

// filtered marks the verdict as uncertain if programs at the socket's cgroup may drop its packets, as those of
// systemd's IPAddressDeny= do.
func (k *walker) filtered(netns string, l sockdiag.Listener) {
	programs, err := k.world.Ports.SocketFilters(l)
	switch {
	case err != nil:
		k.doubt("whether programs at the cgroup of %s in %s drop its packets is unknown: %s", l.Process, k.name(netns), err)
	case len(programs) > 0:
		k.doubt("programs at the cgroup of %s in %s are not followed, and may drop its packets: %s", l.Process,
			k.name(netns), strings.Join(programs, ", "))
	}
}

// takes returns the socket that accepts packets for an address that arrive on a link: the
// one that is bound to the address, or else one that is bound to the unspecified
// address. Among these, the kernel prefers one that is bound to the link.
func (k *walker) takes(all []sockdiag.Listener, link string, at netip.AddrPort) (sockdiag.Listener, bool) {
	var best sockdiag.Listener
	rank := -1
	for _, l := range all {
		if l.Proto != k.proto || l.At.Port() != at.Port() || !l.Answers(at.Addr()) || l.Link != "" && l.Link != link {
			continue
		}
		switch n := preference(l, at.Addr()); {
		case n > rank:
			best, rank = l, n
		case n == rank && (l.At != best.At || l.Link != best.Link || l.Process.PID != best.Process.PID):
			k.doubt("the kernel chooses one of several sockets: %s of %s, or %s of %s", socketText(best), best.Process,
				socketText(l), l.Process)
		}
	}
	return best, rank >= 0
}

// preference returns the kernel's score of a socket for an address (inet_hashtables.c and
// udp.c, compute_score), with sockets that are bound to the address first.
func preference(l sockdiag.Listener, at netip.Addr) int {
	n, bound := 0, 1
	if l.Proto == model.UDP {
		bound = 4
	}
	if l.At.Addr() == at {
		n += 100
	}
	if l.Link != "" {
		n += bound
	}
	if l.At.Addr().Is4() {
		n++
	}
	return n
}

// returnPath follows the answer, and records its route if it leaves via another
// link. It reports whether the answer has a route; if not, it ends the walk.
func (k *walker) returnPath(netns, in string, p packet) bool {
	if !p.src.IsValid() {
		return true
	}
	if !k.translated {
		return !k.answerLost(netns, p) && k.reverse(netns, in, p)
	}
	if in == "lo" {
		return true
	}
	_, err := k.world.Routes.Route(netns, rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})
	var none *rtnl.ErrNoRoute
	if errors.As(err, &none) {
		k.hop(p, Hop{Kind: Answer, Where: k.name(netns), What: "the answer has no route: " + none.Why,
			By: queryText(rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})})
		k.end(NoRoute, "it reaches %s, but the answer has no route to %s", k.name(netns), p.src.Addr())
		return false
	}
	if k.returns != "" && netns != "" && in == k.returns {
		return k.returnsToProgram(netns, in, p)
	}
	return k.reverse(netns, in, p)
}

// returnsToProgram reports whether the answer leaves by the link through which the
// eBPF program sees it; if not, it ends the walk.
func (k *walker) returnsToProgram(netns, in string, p packet) bool {
	r, err := k.world.Routes.Route(netns, rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})
	if err != nil || r.Link == in || r.Link == "lo" {
		return true
	}
	k.hop(p, Hop{Kind: Answer, Where: k.name(netns), Link: r.Link,
		What: fmt.Sprintf("the answer leaves via %s, not via %s: %s", r.Link, in, routeText(r))})
	k.end(NoRoute,
		"it reaches %s, but the answer leaves via %s, where no eBPF program sets its source to the published address: publish the port via nat",
		k.name(netns), r.Link)
	return false
}

// reverse records if the answer leaves via another link than the one on which the
// packet arrived.
func (k *walker) reverse(netns, in string, p packet) bool {
	r, err := k.world.Routes.Route(netns, rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})
	if err == nil && r.Link != in && in != "lo" {
		k.answer(netns, r.Link, fmt.Sprintf("the answer leaves via %s, not via %s: %s", r.Link, in, routeText(r)))
	}
	return true
}

// ourProxy is the process name of Fairlead's user-space proxy.
const ourProxy = "fairlead-proxy"

// proxied follows the connection that a proxy on the host opens: Fairlead's proxy
// or docker-proxy. It returns false if the process is neither.
func (k *walker) proxied(in string, l sockdiag.Listener, p packet) bool {
	to, docker := k.world.Ports.ProxyTarget(l)
	published, ours := k.promises.published(p.dst)
	ours = ours && l.Process.Command == ourProxy && !docker
	if ours {
		to, ours = published.target(p.dst.Port())
	}
	if !docker && !ours {
		return false
	}
	h := Hop{Kind: Proxy, Where: k.name(""), What: fmt.Sprintf("%s accepts it, and dials %s", l.Process, to),
		By:   socketText(l),
		Clue: Clue{Hook: "input", Connected: k.proto == model.TCP}}
	switch {
	case ours:
		h.Why = k.promises.promised(p.dst)
	default:
		h.Why = "docker-proxy copies every byte, and the workload sees the host's address"
	}
	k.hop(p, h)
	if !k.returnPath("", in, p) {
		return true
	}
	k.netfilter.conns, k.home, k.outside = map[string]*conn{}, "", ""
	k.answer("", "", fmt.Sprintf("%s copies the answer to its client; these are two connections", l.Process.Command))
	k.send("", packet{dst: to})
	return true
}
