package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// stays reports whether a bridge forwards a packet itself whose destination NAT has changed:
// the bridge calls the IP rules for its packets, and the route is via the bridge
// (br_nf_pre_routing_finish in br_netfilter_hooks.c). The packet then passes the same IP
// rules as one that the host forwards.
func (k *walker) stays(netns, link string, r rtnl.RouteFound, p packet) bool {
	if r.Link != link || r.Type != unix.RTN_UNICAST || !k.wire.bridgeCallsFilter(netns, link, p) {
		return false
	}
	if k.netfilter.hasFrameRules(netns, link, p.port) {
		k.doubt("%s of %s calls the IP rules for bridged packets: which of the rules for frames apply to a packet that NAT sends back to it is not followed",
			link, k.name(netns))
	}
	return true
}

// takesAnswer reports whether a bridge gives the frame of an answer to its namespace although
// it is for a port: the bridge calls the IP rules, and source NAT has changed the destination
// of the answer back (br_nf_pre_routing_finish in br_netfilter_hooks.c).
func (k *walker) takesAnswer(netns string, b rtnl.NetLink, p packet) bool {
	return k.reply && k.wire.callsFilter(netns, b, p) && k.netfilter.untranslate(netns, "prerouting", p).dst != p.dst
}

// mayStay marks the verdict as uncertain if a packet has no route because the host does not
// forward IPv4: with some versions of Linux a bridge forwards such a packet itself after NAT.
func (k *walker) mayStay(netns, link string, was netip.AddrPort, p packet) {
	if p.dst != was && p.dst.Addr().Is4() && k.wire.bridgeCallsFilter(netns, link, p) &&
		k.wire.settings.Setting(netns, plan.LinkSetting("ipv4", link, "forwarding")) == "0" {
		k.doubt("%s of %s calls the IP rules for bridged packets, and %s does not forward packets: whether the bridge then forwards a packet that NAT sends back to it depends on the version of Linux",
			link, k.name(netns), k.name(netns))
	}
}

// bridgeCallsFilter reports whether the link is a bridge whose packets pass the IP rules.
func (w *wire) bridgeCallsFilter(netns, link string, p packet) bool {
	b, ok := linkOf(w.links, netns, link)
	return ok && b.Kind == "bridge" && w.callsFilter(netns, b, p)
}

// isBehind reports whether the interface that a frame is for is behind the port.
func (w *wire) isBehind(netns string, port rtnl.NetLink, t target) bool {
	end, ok := w.links.Peer(netns, port)
	return port.Name != "" && ok && end.Bridge == "" && w.isFor(end, t)
}

// notReturned ends the walk of a frame for the port on which it came.
func (w *wire) notReturned(netns string, b, port rtnl.NetLink, t target, p packet) {
	w.hop(p, Hop{Kind: Bridge, Where: w.name(netns), Link: b.Name,
		What: fmt.Sprintf("bridge: %s is at port %s, from which the packet came", t.addr, port.Name),
		By:   "bridge link set dev " + escape.Shell(port.Name) + " hairpin on"})
	w.end(NoRoute, "%s sends no packet back to the port from which it came, %s, unless its hairpin mode is on", b.Name, port.Name)
}

// hasFrameRules reports whether rules apply to frames on their way from a bridge to its
// namespace or back, or whether rules compare the port of a frame, which may be unknown.
func (n *netfilter) hasFrameRules(netns, bridge, port string) bool {
	rs, ok := n.rules(netns)
	return !ok || slices.ContainsFunc(rs, func(c rules.Chain) bool {
		switch c.Hook {
		case "ingress", "egress":
			return len(c.Links) == 0 || slices.Contains(c.Links, bridge)
		case "input", "output":
			return c.Family() == "bridge"
		case "forward":
			return c.Family() == "bridge" && port == ""
		}
		return false
	})
}

// fromBridge follows a packet that a namespace sends through its bridge, or that stays in
// the bridge: that one leaves as a frame of the port on which it arrived.
func (k *walker) fromBridge(netns string, b rtnl.NetLink, next netip.Addr, p packet) {
	c := k.wire.begin(netns, b, next)
	if !p.stays {
		k.bridge(netns, b, "", c, p)
		return
	}
	links, err := k.world.Links.Links(netns)
	if k.fail(err) {
		return
	}
	in, _ := linkOf(k.world.Links, netns, p.port)
	k.forwardFrame(netns, b, links, in, c, p)
}

// callsRules follows a frame of a port through the IP rules if the bridge calls them and the
// packet has not passed them. It reports whether the packet passes.
func (k *walker) callsRules(netns string, b, in rtnl.NetLink, p *packet) bool {
	if in.Name == "" || p.stays || !k.wire.callsFilter(netns, b, *p) {
		return true
	}
	return k.netfilter.bridgeFilter(netns, b, p)
}
