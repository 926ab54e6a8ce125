package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// router makes the routing decisions of a packet.
type router struct {
	*report
	routes   Routes
	links    Links
	settings Settings
}

// route looks up the route of the packet, and ends the walk if there is none.
func (rt *router) route(netns, in string, p packet) (rtnl.RouteFound, bool) {
	rt.selects(netns, p)
	rt.protects(netns, p)
	q := rtnl.RouteQuery{To: p.dst.Addr(), From: p.src.Addr(), In: in, Out: p.bound, Mark: p.mark.Value}
	r, err := rt.routes.Route(netns, q)
	var none *rtnl.ErrNoRoute
	if errors.As(err, &none) {
		why, by := rt.whyNot(netns, none.Why, q)
		rt.hop(p, Hop{Kind: Route, Where: rt.name(netns), Link: in, What: "cannot route it: " + why, By: by})
		rt.end(NoRoute, "%s cannot route packets to %s: %s", rt.name(netns), p.dst.Addr(), why)
		return r, false
	}
	if r.NextHops > 1 {
		rt.doubt("the route of %s to %s has %d next hops (multipath): the kernel chooses one by a hash", rt.name(netns),
			p.dst.Addr(), r.NextHops)
	}
	return r, !rt.fail(err)
}

// selects marks the verdict as uncertain if policy routing compares fields of the
// packet that are not known.
func (rt *router) selects(netns string, p packet) {
	s, err := rt.routes.Selectors(netns)
	switch {
	case rt.fail(err):
	case s.Mark&p.mark.Unknown != 0:
		rt.doubt("the policy routing of %s compares the packet's mark, which is unknown: %s", rt.name(netns), p.mark)
	}
	for _, o := range s.Others {
		rt.doubt("the policy routing of %s compares more than addresses and marks (ip %s), which is not followed",
			rt.name(netns), o)
	}
}

// protects marks the verdict as uncertain if an IPsec policy covers the packet, which the
// kernel then encrypts, or drops because it came in cleartext. Ports are not compared.
func (rt *router) protects(netns string, p packet) {
	all, err := rt.routes.Policies(netns)
	if rt.fail(err) {
		return
	}
	covers := func(o netip.Prefix, a netip.Addr) bool { return !a.IsValid() || o.Contains(a) }
	for _, o := range all {
		if covers(o.Local, p.src.Addr()) && covers(o.Remote, p.dst.Addr()) ||
			covers(o.Local, p.dst.Addr()) && covers(o.Remote, p.src.Addr()) {
			rt.doubt("an IPsec policy of %s covers the packet, which is not followed: %s", rt.name(netns), o)
		}
	}
}

// whyNot returns in more detail why the kernel does not route a packet, and the
// command or setting that shows it.
func (rt *router) whyNot(netns, why string, q rtnl.RouteQuery) (reason, by string) {
	if q.In != "" {
		if reason, by := rt.refused(netns, q); reason != "" {
			return reason, by
		}
	}
	links, err := rt.links.Links(netns)
	if rt.fail(err) {
		return why, queryText(q)
	}
	var down []string
	for _, l := range links {
		if !l.Up && len(l.Addresses) > 0 {
			down = append(down, l.Name)
		}
	}
	if len(down) > 0 && q.In == "" {
		return fmt.Sprintf("%s; links that are down: %s", why, strings.Join(down, ", ")), "ip link set " + down[0] +
			" up"
	}
	return why, queryText(q)
}

// refused returns why a namespace does not accept a packet from a link although it
// has a route. The kernel returns the same error for all of these causes.
func (rt *router) refused(netns string, q rtnl.RouteQuery) (reason, by string) {
	name := func(setting string) string { return plan.LinkSetting("ipv4", q.In, setting) }
	on := func(setting string) bool {
		return rt.settings.Setting(netns, name(setting)) == "1" ||
			rt.settings.Setting(netns, "net.ipv4.conf.all."+setting) == "1"
	}
	if !q.From.Is4() {
		return "", ""
	}
	local, _ := addresses(rt.links, netns)
	switch {
	case (q.From.IsLoopback() || q.To.IsLoopback()) && !on("route_localnet"):
		return "the kernel drops packets with loopback addresses that arrive on a link", name("route_localnet") + " = 0"
	case slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Addr() == q.From }) && !on("accept_local"):
		return fmt.Sprintf("%s is an address of %s itself, so it cannot be the source of a packet from %s (a martian)",
			q.From, rt.name(netns), q.In), name("accept_local") + " = 0"
	}
	strict := max(rt.settings.Setting(netns, name("rp_filter")),
		rt.settings.Setting(netns, "net.ipv4.conf.all.rp_filter"))
	if strict != "1" && strict != "2" {
		return "", ""
	}
	back, err := rt.routes.Route(netns, rtnl.RouteQuery{To: q.From})
	switch {
	case err != nil:
		return fmt.Sprintf("rp_filter: there is no route back to %s", q.From), name("rp_filter") + " = " + strict
	case back.Link != q.In && strict == "1":
		return fmt.Sprintf("rp_filter: answers to %s would leave via %s, not via %s", q.From, back.Link, q.In),
			name("rp_filter") + " = 1"
	}
	return "", ""
}

// forwards reports whether the namespace forwards packets, and ends the walk if
// it does not. For IPv4, the route lookup already fails in that case.
func (rt *router) forwards(netns, link string, p packet) bool {
	name := "net.ipv6.conf.all.forwarding"
	if p.dst.Addr().Is4() {
		name = plan.LinkSetting("ipv4", link, "forwarding")
	}
	if rt.settings.Setting(netns, name) != "0" || p.dst.Addr().Is6() &&
		rt.settings.Setting(netns, plan.LinkSetting("ipv6", link, "force_forwarding")) == "1" {
		return true
	}
	rt.hop(p, Hop{Kind: Route, Where: rt.name(netns), Link: link, What: "does not forward packets", By: name + " = 0"})
	rt.end(NoRoute, "%s does not forward packets (%s = 0)", rt.name(netns), name)
	return false
}

// routed records a routing decision. hook is the hook that the packet passes next.
func (rt *router) routed(netns, in, hook string, r rtnl.RouteFound, p packet) {
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
	rt.hop(p, Hop{Kind: Route, Where: rt.name(netns), Link: link, What: what, By: routeText(r), Clue: clue})
}

// hostTowards returns the source address that the host uses for a destination.
func (rt *router) hostTowards(to netip.Addr) netip.Addr {
	r, err := rt.routes.Route("", rtnl.RouteQuery{To: to})
	if err != nil {
		return netip.Addr{}
	}
	return r.Src
}

// queryText returns the ip(8) command for the query.
func queryText(q rtnl.RouteQuery) string {
	text := "ip route get " + q.To.String()
	if q.From.IsValid() {
		text += " from " + q.From.String()
	}
	if q.In != "" {
		text += " iif " + q.In
	}
	return text
}

// routeText returns the matching route in the format of ip(8).
func routeText(r rtnl.RouteFound) string {
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
