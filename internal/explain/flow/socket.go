package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/promise"
)

// receive follows a packet through the hook input to the socket that accepts it.
func (k *walker) receive(netns, in string, p packet) {
	if !k.filter(netns, "input", rules.WholeHook, in, "", &p, false) {
		return
	}
	if k.reply {
		if netns != k.home || k.outside != "" {
			k.end(NoRoute, "it arrives in %s, which did not send the request", k.Name(netns))
		}
		k.returned()
		return
	}
	if netns == "" && k.servesIPVS(in, p) {
		return
	}
	all, err := k.Listeners(netns)
	if k.fail(err) {
		return
	}
	l, ok := takes(all, k.proto, p.dst)
	if !ok {
		k.hop(p, Hop{Kind: Delivery, Where: k.Name(netns), Link: in, What: fmt.Sprintf("no socket listens on %s/%s", p.dst, k.proto),
			Clue: Clue{Netns: netns, Hook: "input", Link: in}})
		if !k.returnPath(netns, in, p) {
			return
		}
		k.end(Refused, "no socket listens on %s/%s in %s", p.dst, k.proto, k.Name(netns))
		return
	}
	if netns == "" && k.proxied(in, l, p) {
		return
	}
	h := Hop{Kind: Delivery, Where: k.Name(netns), Link: in, What: "the socket of " + l.Process.String(), By: socketText(l),
		Clue: Clue{Netns: netns, Hook: "input", Link: in, Connected: k.proto == model.TCP}}
	if netns == "" {
		k.granted(&h, p.dst)
	}
	k.hop(p, h)
	if !k.returnPath(netns, in, p) {
		return
	}
	k.out.Process = &Process{PID: l.Process.PID, Command: l.Process.Command, Container: l.Process.Container, Where: k.Name(netns)}
	k.end(Delivered, "delivered to %s in %s", l.Process, k.Name(netns))
}

// granted adds the bind hook that assigned a workload the port, if one did.
func (k *walker) granted(h *Hop, at netip.AddrPort) {
	s, err := k.EBPFState()
	if k.fail(err) {
		return
	}
	for _, g := range s.Grants {
		if g.Proto == k.proto && g.Ports.Overlaps(model.Port(at.Port())) && g.Host.Is4() == at.Addr().Is4() &&
			(g.Host.IsUnspecified() || g.Host == at.Addr()) {
			h.What += fmt.Sprintf("; the hook at bind assigned this port when the workload asked for %d", g.Own.First+(at.Port()-g.Ports.First))
			h.By = g.Add()[0]
			h.Why = k.quotes(model.ViaSocket, model.DriverHost, at)
			return
		}
	}
}

func socketText(l sockdiag.Listener) string {
	state := "listening"
	if l.Proto == model.UDP {
		state = "bound"
	}
	return fmt.Sprintf("%s on %s/%s", state, l.At, l.Proto)
}

// takes returns the socket that accepts packets for an address: the one that is
// bound to it, or else one that is bound to the unspecified address.
func takes(all []sockdiag.Listener, proto model.Proto, at netip.AddrPort) (sockdiag.Listener, bool) {
	var best sockdiag.Listener
	rank := -1
	for _, l := range all {
		if l.Proto != proto || l.At.Port() != at.Port() || !l.Answers(at.Addr()) {
			continue
		}
		n := 0 // :: for both families
		switch {
		case l.At.Addr() == at.Addr():
			n = 2
		case l.At.Addr().Is4() == at.Addr().Is4():
			n = 1
		}
		if n > rank {
			best, rank = l, n
		}
	}
	return best, rank >= 0
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
	_, err := k.Route(netns, rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})
	var none *rtnl.ErrNoRoute
	if errors.As(err, &none) {
		k.hop(p, Hop{Kind: Answer, Where: k.Name(netns), What: "the answer has no route: " + none.Why,
			By: queryText(rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})})
		k.end(NoRoute, "it reaches %s, but the answer has no route to %s", k.Name(netns), p.src.Addr())
		return false
	}
	return k.reverse(netns, in, p)
}

// reverse records if the answer leaves via another link than the one on which the
// packet arrived.
func (k *walker) reverse(netns, in string, p packet) bool {
	r, err := k.Route(netns, rtnl.RouteQuery{To: p.src.Addr(), From: p.dst.Addr()})
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
	to, docker := k.ProxyTarget(l)
	published, ours := k.published(p.dst)
	ours = ours && l.Process.Command == ourProxy && !docker
	if ours {
		to, ours = published.target(p.dst.Port())
	}
	if !docker && !ours {
		return false
	}
	h := Hop{Kind: Proxy, Where: k.Name(""), What: fmt.Sprintf("%s accepts it, and dials %s", l.Process, to), By: socketText(l),
		Clue: Clue{Hook: "input", Connected: k.proto == model.TCP}}
	switch {
	case ours:
		h.Why = k.promised(p.dst)
	default:
		h.Why = "docker-proxy copies every byte, and the workload sees the host's address"
	}
	k.hop(p, h)
	if !k.returnPath("", in, p) {
		return true
	}
	k.conns, k.home, k.outside = map[string]*conn{}, "", ""
	k.answer("", "", fmt.Sprintf("%s copies the answer to its client; these are two connections", l.Process.Command))
	k.send("", packet{dst: to})
	return true
}

// published returns the publish of a port of the host.
func (k *walker) published(at netip.AddrPort) (Published, bool) {
	all := k.Published()
	i := slices.IndexFunc(all, func(p Published) bool { return p.covers(k.proto, at) })
	if i < 0 {
		return Published{}, false
	}
	return all[i], true
}

// promised returns what the publish mode of the port promises.
func (k *walker) promised(at netip.AddrPort) string {
	p, ok := k.published(at)
	if !ok {
		return ""
	}
	return k.quotes(p.Via, p.Driver, at)
}

// quotes returns what a publish mode with a driver promises to this kind of
// client.
func (k *walker) quotes(via model.Via, d model.Driver, at netip.AddrPort) string {
	mode, ok := paths.Mode(via)
	if !ok {
		return ""
	}
	set := mode.Promises(d)
	if set == nil {
		return ""
	}
	sources := map[client]promise.Question{lan: promise.LANSource, local: promise.HostSource, peer: promise.PeerSource}
	questions := []promise.Question{sources[k.client]}
	switch {
	case k.client == lan:
		questions = append(questions, promise.InputFirewall, promise.ForwardFirewall)
	case at.Addr() == netip.IPv6Loopback():
		questions = append(questions, promise.Loopback6)
	case at.Addr().IsLoopback():
		questions = append(questions, promise.Loopback4)
	}
	quotes := []string{fmt.Sprintf("%s+%s", d, via)}
	for _, q := range questions {
		quotes = append(quotes, quote(q, set[q]))
	}
	return strings.Join(quotes, "; ")
}

// quote writes a promise in the format of `fairlead paths`.
func quote(q promise.Question, a promise.Answer) string {
	text := fmt.Sprintf("%s: no", q)
	if a.Kept {
		text = fmt.Sprintf("%s: yes", q)
	}
	if a.How != "" {
		text += " (" + a.How + ")"
	}
	return text
}
