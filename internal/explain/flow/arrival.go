package flow

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
)

// ExplainArrival follows a packet that another host of a cluster has sent: through the tunnel of the network
// that has its destination, or from the link towards its source if there is no tunnel. Errors are those of
// Explain.
func ExplainArrival(w World, proto model.Proto, from, to netip.AddrPort) (Explanation, error) {
	f := Flow{From: from.Addr().String(), FromPort: from.Port(), To: to.Addr().String(), Port: to.Port(), Proto: proto}
	k := newWalker(w, proto, lan)
	k.out = Explanation{Flow: f.String(), Proto: proto, Outside: true, Asked: f}
	p := packet{src: from, dst: to}
	towards := to.Addr()
	tunnel, bridge, ok := k.tunnelTo(towards)
	if k.err == nil && !ok {
		r, err := w.Routes.Route("", rtnl.RouteQuery{To: from.Addr()})
		if !k.fail(err) {
			k.outside = r.Link
			k.hop(p, Hop{Kind: Begin, Where: k.name(""), Link: r.Link,
				What: fmt.Sprintf("arrives from the host that has %s", from.Addr())})
			k.arrive("", r.Link, p)
		}
	} else if k.err == nil {
		k.outside = tunnel.Name
		k.hop(p, Hop{Kind: Begin, Where: k.name(""), Link: tunnel.Name,
			What: fmt.Sprintf("arrives through the tunnel from the host that has %s", from.Addr())})
		if !k.usesEBPF(tunnel.Name, p) {
			k.bridge("", bridge, tunnel.Name, k.wire.begin("", bridge, towards), p)
		}
	}
	if k.err != nil {
		return k.out, fmt.Errorf("explain %s: %w", f, k.err)
	}
	return k.finish(to), nil
}

// tunnelTo returns the tunnel at the bridge to which the host routes an address, if there is one.
func (k *walker) tunnelTo(a netip.Addr) (tunnel, bridge rtnl.NetLink, ok bool) {
	r, err := k.world.Routes.Route("", rtnl.RouteQuery{To: a})
	if k.fail(err) {
		return tunnel, bridge, false
	}
	links, err := k.world.Links.Links("")
	if k.fail(err) {
		return tunnel, bridge, false
	}
	i := slices.IndexFunc(links, func(l rtnl.NetLink) bool { return l.Kind == "vxlan" && l.Bridge == r.Link })
	bridge, ok = linkOf(k.world.Links, "", r.Link)
	if i < 0 || !ok {
		return tunnel, bridge, false
	}
	return links[i], bridge, true
}
