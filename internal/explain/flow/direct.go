package flow

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"
)

// direct follows a packet of another machine that passes the host without its IP stack: to a
// sub-link of the link, or through a bridge whose subnet the machine shares. It reports
// whether the packet takes such a path.
func (k *walker) direct(in string, p packet) bool {
	l, ok := linkOf(k.world.Links, "", in)
	if !ok {
		return false
	}
	c := crossing{to: target{addr: p.dst.Addr()}}
	for _, sub := range k.world.Links.SubLinks("", l) {
		if sub.Has(p.dst.Addr()) {
			if !k.wire.isDown(sub, p) {
				k.enter(c.with(stage{hook: "ingress", link: in},
					stage{netns: sub.Netns, hook: "ingress", link: sub.Name}), l, sub, p)
			}
			return true
		}
	}
	if l.Kind != "bridge" || !k.shares(l, p) {
		return false
	}
	links, err := k.world.Links.Links("")
	if k.fail(err) {
		return true
	}
	found, open, _ := k.wire.ports("", l, links, rtnl.NetLink{}, c.to)
	if len(found) == 0 || len(open) == 0 {
		return false
	}
	if len(open) > 1 {
		k.doubt("%s may be at several ports of %s: %s and %s", p.src.Addr(), in, open[0].Name, open[1].Name)
	}
	if !k.wire.isDown(End{"", l}, p) {
		k.bridge("", l, open[0].Name, c.with(stage{hook: "ingress", link: open[0].Name}), p)
	}
	return true
}

// shares reports whether a subnet of the link has the packet's destination, and its source or
// the router behind which that is.
func (k *walker) shares(l rtnl.NetLink, p packet) bool {
	r, err := k.world.Routes.Route("", rtnl.RouteQuery{To: p.src.Addr()})
	if k.fail(err) {
		return false
	}
	near := p.src.Addr()
	if r.Via.IsValid() {
		near = r.Via
	}
	return slices.ContainsFunc(l.Addresses, func(o netip.Prefix) bool {
		return o.Contains(p.dst.Addr()) && o.Contains(near) && o.Addr() != p.dst.Addr()
	})
}
