package flow

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/rtnl"

	"golang.org/x/sys/unix"
)

// sourceAddress returns the source address that masquerading uses. For IPv4 it is one of the
// link on which the packet leaves, whatever source the route prefers (nf_nat_masquerade_ipv4).
func (n *netfilter) sourceAddress(netns string, r rtnl.RouteFound, p packet) netip.Addr {
	l, _ := linkOf(n.links, netns, r.Link)
	next := p.dst.Addr()
	if r.Via.Is4() {
		next = r.Via
	}
	if a := selected(l, next); a.IsValid() {
		return a
	}
	out, err := n.routes.Route(netns, rtnl.RouteQuery{To: p.dst.Addr()})
	if err == nil && out.Src.IsValid() && out.Type == unix.RTN_UNICAST {
		return out.Src
	}
	for _, a := range l.Addresses {
		if a.Addr().Is4() == p.dst.Addr().Is4() && !a.Addr().IsLinkLocalUnicast() {
			return a.Addr()
		}
	}
	return p.src.Addr()
}

// selected returns the IPv4 address of a link for packets to a next hop: the first one whose
// subnet has the next hop, or else the first one (inet_select_addr in devinet.c). It ignores
// secondary addresses, in whose subnet the link has an earlier one. It is invalid if the link
// has none, or if the next hop has an IPv6 address.
func selected(l rtnl.NetLink, next netip.Addr) (found netip.Addr) {
	for i, a := range l.Addresses {
		secondary := slices.ContainsFunc(l.Addresses[:i], func(o netip.Prefix) bool { return o.Masked() == a.Masked() })
		switch {
		case !next.Is4() || !a.Addr().Is4() || a.Addr().IsLoopback() || secondary:
		case a.Contains(next):
			return a.Addr()
		case !found.IsValid():
			found = a.Addr()
		}
	}
	return found
}
