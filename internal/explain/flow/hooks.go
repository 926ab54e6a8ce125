package flow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// ourTable is the family and name of Fairlead's table.
const ourTable = "inet " + plan.Mark

// netfilter follows packets through the hooks of netfilter and of links: filters,
// NAT, and the connection tracking that NAT needs.
type netfilter struct {
	*report
	// renews is true while messages are followed that renew an entry of a neighbour.
	renews   bool
	filters  Filters
	links    Links
	routes   Routes
	balancer *balancer
	promises *promises
	proto    model.Proto
	// conns are the flow's entries of connection tracking, by namespace.
	conns map[string]*conn
	// locals caches which addresses are local to a namespace.
	locals map[neighbour]bool
	// rerouted is true if the kernel looks up the route again.
	rerouted bool
}

// packetAt returns the packet as rules see it.
func (n *netfilter) packetAt(netns, in, out string, p packet) rules.Packet {
	src := p.src
	if !src.IsValid() {
		src = netip.AddrPort{}
	}
	c := n.conn(netns)
	found := rules.Packet{Proto: n.proto, From: src, To: p.dst, In: in, Out: out, Local: n.local(netns, p.dst.Addr()),
		Translated: p.dnat || c.newDst.IsValid(), SourceTranslated: c.newSrc.IsValid(), Mark: p.mark, CtMark: c.mark,
		NoTrack: *c.untracked(n.reply), Reply: n.reply, Refusal: n.refusal,
		Established: n.established}
	if n.orphaned(netns) { // only a datagram begins a connection of its own
		found.Invalid = n.proto == model.TCP && !n.established || n.refusal
		found.Reply, found.Established = found.Invalid, false
		found.Translated, found.SourceTranslated = false, false
	}
	found.Invalid = found.Invalid || n.established && c.answerNoTrack && !c.noTrack // no answer was seen
	return n.withSource(netns, found)
}

// withSource returns the packet with what the namespace knows about its source address.
func (n *netfilter) withSource(netns string, p rules.Packet) rules.Packet {
	local, _ := addresses(n.links, netns)
	src := p.From.Addr()
	p.Own = slices.ContainsFunc(local, func(o netip.Prefix) bool { return o.Addr() == src })
	p.Behind = !p.Own && n.behind(netns, p.In, src)
	return p
}

// local reports whether an address is local to the namespace, also because of a route of the
// type local.
func (n *netfilter) local(netns string, a netip.Addr) bool {
	all, _ := addresses(n.links, netns)
	if a.IsLoopback() || slices.ContainsFunc(all, func(o netip.Prefix) bool { return o.Addr() == a }) {
		return true
	}
	at := neighbour{netns: netns, addr: a}
	is, known := n.locals[at]
	if !known {
		r, err := n.routes.Route(netns, rtnl.RouteQuery{To: a})
		is = err == nil && r.Type == unix.RTN_LOCAL
		n.locals[at] = is
	}
	return is
}

// behind reports whether the namespace's route to the source of a packet leaves on the link on which the packet
// arrives. If not, the answer of a rule that looks for such a route is unknown: the kernel looks at each next hop, and
// for IPv6 at less specific routes too. A link-local address is behind the link on which the packet arrives
// (nft_fib_ipv6.c, nft_fib6_flowi_init).
func (n *netfilter) behind(netns, in string, src netip.Addr) bool {
	if in == "" || !src.IsValid() {
		return false
	}
	q := rtnl.RouteQuery{To: src}
	if src.Is6() && src.IsLinkLocalUnicast() {
		q.Out = in
	}
	back, err := n.routes.Route(netns, q)
	return err == nil && back.Type == unix.RTN_UNICAST && back.Link == in
}

// rules reads a namespace's rules and records what could not be read.
func (n *netfilter) rules(netns string) (rules.Ruleset, bool) {
	rs, unread, err := n.filters.Rules(netns)
	for _, u := range unread {
		if note := n.name(netns) + ": " + u; !slices.Contains(n.out.Notes, note) {
			n.out.Notes = append(n.out.Notes, note)
			n.out.Uncertain = true
		}
	}
	return rs, !n.fail(err)
}

// filter follows a packet through the filters of a hook, or of a part of it, and
// reports whether it passes. It records rules that accept the packet if showAccept
// is set, or if they are not Fairlead's.
func (n *netfilter) filter(netns, hook string, part rules.Part, in, out string, p *packet, showAccept bool) bool {
	if n.ended {
		return false
	}
	rs, ok := n.rules(netns)
	if !ok {
		return false
	}
	v := rs.FilterPart(hook, part, n.packetAt(netns, in, out, *p))
	n.rerouted = n.rerouted || v.Rerouted
	n.marked(netns, hook, firstOf(in, out), v, p)
	if !v.Certain {
		n.doubt("rules at %s of %s have conditions that Fairlead cannot evaluate: %s", hook, n.name(netns), doubtful(v))
	}
	h := n.hopAt(netns, hook, firstOf(in, out), v)
	switch {
	case v.Action == rules.Drop || v.Action == rules.Reject:
		n.drop(h, v, *p)
		return !v.Certain
	case !v.Certain:
		h.What = hook + ": passes, unless a rule matches that Fairlead cannot evaluate: " + doubtful(v)
		h.By = ""
		n.hop(*p, h)
	case v.By.Rule.Action != "" && !v.Policy && (showAccept || v.By.Table != ourTable):
		h.What = hook + ": accepted"
		n.hop(*p, h)
	}
	return true
}

// shortcut records that the connection gets into Fairlead's flowtable, if its packets between
// the links do.
func (n *netfilter) shortcut(netns, in, out string, p packet) {
	rs, ok := n.rules(netns)
	c, has := rs.Find("inet "+plan.FlowtableName, "forward")
	if netns != "" || !ok || !has {
		return
	}
	later := n.packetAt(netns, in, out, p)
	later.Established = true
	const note = "once the connection is established, its packets pass a flowtable and no FORWARD rule of the host (table " +
		plan.FlowtableName + "), until a rule changes"
	matches := func(r rules.Rule) bool { return r.Matches(later) == rules.Yes }
	if slices.ContainsFunc(c.Rules, matches) && !slices.Contains(n.out.Notes, note) {
		n.out.Notes = append(n.out.Notes, note)
	}
}

// hopAt returns the hop of a packet at a hook that the rules of the verdict decide on.
func (n *netfilter) hopAt(netns, hook, link string, v rules.Verdict) Hop {
	return Hop{Kind: Filter, Where: n.name(netns), Link: link, By: ruleText(v.By), Uncertain: !v.Certain,
		Clue: Clue{Netns: netns, Hook: hook, Link: link}}
}

// drop records that a rule drops or rejects the packet, and ends the walk if that is certain.
func (n *netfilter) drop(h Hop, v rules.Verdict, p packet) {
	hook := h.Clue.Hook
	h.What = fmt.Sprintf("%s: %s", hook, ending(v.Action, v.Certain))
	if v.Policy {
		h.By = policyText(v.By)
	}
	switch {
	case isIsolation(v.By):
		h.Why = "only published ports and answers may enter an isolated network, and nothing may enter an internal one"
	case v.By.Table == ourTable && v.By.Chain == "datagram_sources":
		h.Why = "its source address is not behind this link: the answer would go to somebody else"
	}
	n.hop(p, h)
	if v.Certain {
		n.end(Dropped, "%s by a rule at %s of %s: %s", done(v.Action), hook, h.Where, h.By)
	}
}

// marked copies the marks that rules set to the packet, and records them.
func (n *netfilter) marked(netns, hook, link string, v rules.Verdict, p *packet) {
	c := n.conn(netns)
	var set []string
	if v.Packet.Mark != p.mark {
		set = append(set, "the packet's mark to "+v.Packet.Mark.String())
	}
	if v.Packet.CtMark != c.mark {
		set = append(set, "the connection's mark to "+v.Packet.CtMark.String())
	}
	untracked := c.untracked(n.reply)
	if v.Packet.NoTrack && !*untracked {
		set = append(set, "notrack (no connection tracking)")
	}
	p.mark, c.mark, *untracked = v.Packet.Mark, v.Packet.CtMark, v.Packet.NoTrack
	if set == nil {
		return
	}
	h := Hop{Kind: Filter, Where: n.name(netns), Link: link, What: hook + ": sets " + strings.Join(set, " and ")}
	for _, s := range v.Met {
		if len(s.Rule.Assigns) > 0 || s.Rule.Action == rules.NoTrack {
			h.By = ruleText(s)
		}
	}
	n.hop(*p, h)
}

func done(a rules.Action) string {
	if a == rules.Reject {
		return "rejected"
	}
	return "dropped"
}

func ending(a rules.Action, certain bool) string {
	if certain {
		return done(a)
	}
	return done(a) + ", unless an earlier rule that Fairlead cannot evaluate accepts it"
}

// doubtful lists the rules on which the verdict depends, and what of them Fairlead cannot
// evaluate.
func doubtful(v rules.Verdict) string {
	var all []string
	for _, s := range v.Doubts {
		text := ruleText(s)
		if len(s.Rule.Unread) > 0 {
			text += " (not evaluated: " + strings.Join(s.Rule.Unread, ", ") + ")"
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// isIsolation reports whether a rule is one of Fairlead's that isolate networks.
func isIsolation(s rules.Step) bool { return s.Table == ourTable && s.Chain == "forward" }

func ruleText(s rules.Step) string {
	if s.Table == "" {
		return ""
	}
	text := fmt.Sprintf("%s %s: %s", s.Table, s.Chain, s.Rule)
	if s.Rule.Comment != "" && s.Rule.Comment != plan.Mark {
		text += fmt.Sprintf(" comment %q", s.Rule.Comment)
	}
	return text
}

func policyText(s rules.Step) string {
	return fmt.Sprintf("%s %s: policy %s", s.Table, s.Chain, s.Rule.Action)
}

// translate follows a packet through the destination NAT of a hook.
func (n *netfilter) translate(netns, hook, in, out string, p packet) packet {
	if n.reply {
		n.orphanedNAT(netns, hook, in, out, p)
		return n.untranslate(netns, hook, p)
	}
	if n.established {
		return n.retranslate(netns, hook, p)
	}
	if netns == "" {
		if translated, ok := n.balancer.servesNFT(hook, in, out, p); ok {
			return translated
		}
	}
	rs, ok := n.rules(netns)
	if !ok || n.ended {
		return p
	}
	v := rs.Translate(hook, n.packetAt(netns, in, out, p))
	n.marked(netns, hook, firstOf(in, out), v, &p)
	n.natDoubts(netns, hook, v)
	if v.Action == rules.Drop || v.Action == rules.Reject {
		n.drop(n.hopAt(netns, hook, firstOf(in, out), v), v, p)
		return p
	}
	if v.Action != rules.DNAT && v.Action != rules.Redirect {
		return p
	}
	was := p.dst
	to, ok := n.target(netns, in, v, p.dst)
	if !ok {
		h := n.hopAt(netns, hook, firstOf(in, out), v)
		h.What = fmt.Sprintf("%s: dropped, because %s has no address to redirect to", hook, in)
		n.hop(p, h)
		if v.Certain {
			n.end(Dropped, "%s of %s redirects it to an address of %s, which has none, so the kernel drops it: %s", hook,
				n.name(netns), in, h.By)
		}
		return p
	}
	if p.dst = to; p.dst == was { // the kernel then translates nothing
		return p
	}
	p.dnat = true
	c := n.conn(netns)
	c.dst, c.newDst = was, p.dst
	h := Hop{Kind: NAT, Where: n.name(netns), Link: firstOf(in, out),
		What: fmt.Sprintf("%s: destination NAT from %s to %s", hook, was, p.dst),
		By:   ruleText(v.By), Uncertain: !v.Certain, Clue: Clue{Netns: netns, Hook: hook, Link: in}}
	if v.By.Table == ourTable {
		h.By, h.Why = element(v.By, n.proto, was), n.promises.promised(was)
	}
	n.hop(p, h)
	return p
}

// natDoubts records what is not certain about the NAT rules of a hook.
func (n *netfilter) natDoubts(netns, hook string, v rules.Verdict) {
	if !v.Certain {
		n.doubt("NAT rules at %s of %s have conditions that Fairlead cannot evaluate: %s", hook, n.name(netns),
			doubtful(v))
	}
	switch {
	case v.By.Rule.Choice:
		n.doubt("NAT at %s of %s chooses one of several addresses or ports: %s", hook, n.name(netns), ruleText(v.By))
	case v.Action == rules.Drop || v.Action == rules.Reject:
		n.doubt("a NAT chain at %s of %s drops the packet if connection tracking is in use there: %s", hook,
			n.name(netns),
			ruleText(v.By))
	}
}

// target returns the new destination of a packet; false if it is redirected and there is no
// address for it. A port that is in the rule's range of ports stays as it is (nf_nat_core.c,
// get_unique_tuple).
func (n *netfilter) target(netns, in string, v rules.Verdict, was netip.AddrPort) (netip.AddrPort, bool) {
	r := v.By.Rule
	addr, port := was.Addr(), was.Port()
	if r.To.IsValid() {
		addr = r.To
	}
	if v.Action == rules.Redirect {
		var ok bool
		if addr, ok = n.redirected(netns, in, addr); !ok {
			return was, false
		}
	}
	if r.ToPorts.First != 0 && (port < r.ToPorts.First || port > r.ToPorts.Last) {
		port = r.ToPorts.First
	}
	return netip.AddrPortFrom(addr, port), true
}

// redirected returns the target of a redirect rule: the first address of the link on which the
// packet arrives, or the loopback address for a packet of the namespace. It returns false if the
// link has no address of the family, or for a link-local destination no link-local one: the
// kernel then drops the packet (nf_nat_redirect.c).
func (n *netfilter) redirected(netns, in string, to netip.Addr) (netip.Addr, bool) {
	switch {
	case in == "" && to.Is4():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	case in == "":
		return netip.IPv6Loopback(), true
	}
	l, _ := linkOf(n.links, netns, in)
	for _, p := range l.Addresses {
		a := p.Addr()
		if a.Is4() == to.Is4() && (a.Is4() || a.IsLinkLocalUnicast() || !to.IsLinkLocalUnicast()) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// element returns the nft command that adds the matching element of Fairlead's
// maps.
func element(s rules.Step, proto model.Proto, dialled netip.AddrPort) string {
	m := plan.NFTMapping{Proto: proto, To: s.Rule.To, ToPort: s.Rule.ToPorts.First, Host: netip.IPv6Unspecified()}
	if dialled.Addr().Is4() {
		m.Host = netip.IPv4Unspecified()
	}
	for _, c := range s.Rule.Conditions {
		for i, f := range c.Fields {
			if len(c.In) != 1 {
				continue
			}
			r := c.In[0][i]
			switch f {
			case rules.Port:
				m.Ports, _ = r.Ports()
			case rules.Destination:
				if prefix, ok := r.Prefix(); ok && prefix.IsSingleIP() {
					m.Host = prefix.Addr()
				}
			}
		}
	}
	return m.Add()[0]
}

// masquerade follows a packet through the source NAT at postrouting.
func (n *netfilter) masquerade(netns, in string, r rtnl.RouteFound, p packet) packet {
	if n.reply {
		n.orphanedNAT(netns, "postrouting", in, r.Link, p)
		return n.untranslate(netns, "postrouting", p)
	}
	if n.established {
		return n.retranslate(netns, "postrouting", p)
	}
	if translated, ok := n.hides(r, p); ok && netns == "" {
		return translated
	}
	rs, ok := n.rules(netns)
	if !ok || n.ended {
		return p
	}
	v := rs.Translate("postrouting", n.packetAt(netns, in, r.Link, p))
	n.marked(netns, "postrouting", r.Link, v, &p)
	n.natDoubts(netns, "postrouting", v)
	if v.Action != rules.SNAT && v.Action != rules.Masquerade {
		return p
	}
	was := p.src.Addr()
	to := v.By.Rule.To
	switch {
	case v.Action == rules.Masquerade:
		to = n.sourceAddress(netns, r, p)
	case !to.IsValid(): // the rule changes only the port
		to = was
	}
	if to == was { // the kernel then translates nothing (nf_nat_setup_info)
		return p
	}
	c := n.conn(netns)
	c.src, c.newSrc = p.src, netip.AddrPortFrom(to, 0)
	p.src = netip.AddrPortFrom(to, 0)
	h := Hop{Kind: NAT, Where: n.name(netns), Link: r.Link,
		What: fmt.Sprintf("postrouting: source NAT from %s to %s", was, to),
		By:   ruleText(v.By), Uncertain: !v.Certain, Clue: Clue{Netns: netns, Hook: "postrouting", Link: r.Link}}
	if v.By.Table == ourTable {
		h.By, h.Why = masqueradeText(v.By), "without it, the answer would bypass the host or have no route back"
	}
	n.hop(p, h)
	n.answer(netns, r.Link, fmt.Sprintf("the answer goes to %s; connection tracking translates it back to %s", to, was))
	return p
}

// masqueradeText returns the rule that masquerades, with the name of Fairlead's
// set.
func masqueradeText(s rules.Step) string {
	for _, set := range []string{plan.SetHairpin, plan.SetOutbound} {
		for _, c := range s.Rule.Conditions {
			if len(c.Fields) == 2 && (s.Chain == "returns") == (set == plan.SetHairpin) {
				return fmt.Sprintf("%s (the set %s)", ruleText(s), set)
			}
		}
	}
	return ruleText(s)
}
