package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/rtnl"

	"golang.org/x/sys/unix"
)

// route looks up the route of the packet, and ends the walk if there is none.
func (k *walker) route(netns, in string, p packet) (rtnl.RouteFound, bool) {
	k.selects(netns, p)
	q := rtnl.RouteQuery{To: p.dst.Addr(), From: p.src.Addr(), In: in, Mark: p.mark.Value}
	r, err := k.Route(netns, q)
	var none *rtnl.ErrNoRoute
	if errors.As(err, &none) {
		why, by := k.whyNot(netns, none.Why, q)
		k.hop(p, Hop{Kind: Route, Where: k.Name(netns), Link: in, What: "cannot route it: " + why, By: by})
		k.end(NoRoute, "%s cannot route packets to %s: %s", k.Name(netns), p.dst.Addr(), why)
		return r, false
	}
	return r, !k.fail(err)
}

// selects marks the verdict as uncertain if policy routing compares fields of the
// packet that are not known.
func (k *walker) selects(netns string, p packet) {
	s, err := k.Selectors(netns)
	switch {
	case k.fail(err):
	case s.Mark&p.mark.Unknown != 0:
		k.doubt("the policy routing of %s compares the packet's mark, which is unknown: %s", k.Name(netns), p.mark)
	}
	for _, o := range s.Others {
		k.doubt("the policy routing of %s compares more than addresses and marks (ip %s), which is not followed", k.Name(netns), o)
	}
}

// whyNot returns in more detail why the kernel does not route a packet, and the
// command or setting that shows it.
func (k *walker) whyNot(netns, why string, q rtnl.RouteQuery) (reason, by string) {
	if q.In != "" {
		if reason, by := k.refused(netns, q); reason != "" {
			return reason, by
		}
	}
	links, err := k.Links(netns)
	if k.fail(err) {
		return why, queryText(q)
	}
	var down []string
	for _, l := range links {
		if !l.Up && len(l.Addresses) > 0 {
			down = append(down, l.Name)
		}
	}
	if len(down) > 0 && q.In == "" {
		return fmt.Sprintf("%s; links that are down: %s", why, strings.Join(down, ", ")), "ip link set " + down[0] + " up"
	}
	return why, queryText(q)
}

// refused returns why a namespace does not accept a packet from a link although it
// has a route. The kernel returns the same error for all of these causes.
func (k *walker) refused(netns string, q rtnl.RouteQuery) (reason, by string) {
	name := func(setting string) string { return "net.ipv4.conf." + q.In + "." + setting }
	on := func(setting string) bool {
		return k.Setting(netns, name(setting)) == "1" || k.Setting(netns, "net.ipv4.conf.all."+setting) == "1"
	}
	if !q.From.Is4() {
		return "", ""
	}
	local, _ := addresses(k, netns)
	switch {
	case (q.From.IsLoopback() || q.To.IsLoopback()) && !on("route_localnet"):
		return "the kernel drops packets with loopback addresses that arrive on a link", name("route_localnet") + " = 0"
	case slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Addr() == q.From }) && !on("accept_local"):
		return fmt.Sprintf("%s is an address of %s itself, so it cannot be the source of a packet from %s (a martian)",
			q.From, k.Name(netns), q.In), name("accept_local") + " = 0"
	}
	strict := max(k.Setting(netns, name("rp_filter")), k.Setting(netns, "net.ipv4.conf.all.rp_filter"))
	if strict != "1" && strict != "2" {
		return "", ""
	}
	back, err := k.Route(netns, rtnl.RouteQuery{To: q.From})
	switch {
	case err != nil:
		return fmt.Sprintf("rp_filter: there is no route back to %s", q.From), name("rp_filter") + " = " + strict
	case back.Link != q.In && strict == "1":
		return fmt.Sprintf("rp_filter: answers to %s would leave via %s, not via %s", q.From, back.Link, q.In), name("rp_filter") + " = 1"
	}
	return "", ""
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
