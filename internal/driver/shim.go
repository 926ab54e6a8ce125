package driver

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// shim plans the shim, which all endpoints of the network share, and the routes
// between the host and this endpoint. The kernel passes no packets between a
// sub-link and its parent, so the host reaches a sandbox only through another
// sub-link.
func (b SubLinks) shim(n model.Network, e model.Endpoint, parent string) plan.Plan {
	reached := b.neighbors(n, e)
	if !b.Shim || len(reached) == 0 {
		return nil
	}
	link := plan.SubLink{Name: ShimLink(n.Name), Kind: b.Kind, Mode: string(b.Mode), Parent: parent, MTU: n.LinkMTU(),
		Owner: n.Name, Group: plan.SandboxLinks, Quiet: true, IPv6: shimIPv6(n)}
	if b.OwnMAC {
		link.MAC = MAC(append(hostAddresses(n), shimLinkLocal(n))...)
	}
	p := plan.Plan{link, plan.Member{Set: plan.SetLinks, Link: link.Name},
		plan.Member{Set: plan.SetLAN, Link: link.Name}}
	for _, host := range hostAddresses(n) {
		p = append(p, plan.Address{Link: link.Name, Prefix: Host(host)})
	}
	for _, to := range reached {
		p = append(p, plan.Route{To: Host(to.addr), Link: link.Name, Src: to.source})
		if to.addr.Is6() && b.Switched {
			p = append(p, toParent(n, e, to.onLink)...)
		}
	}
	return p
}

// shimIPv6 returns the shim's IPv6 mode. If the parent has an IPv6 address, an
// endpoint may have an IPv6 address of the LAN on a network without an IPv6 subnet.
func shimIPv6(n model.Network) plan.IPv6 {
	if slices.ContainsFunc(n.ParentAddresses, netip.Addr.Is6) {
		return plan.IPv6Fixed
	}
	return NetworkIPv6(n)
}

// neighbor is an address of an endpoint that the host reaches through its shim.
type neighbor struct {
	addr netip.Addr
	// onLink is the prefix that the sandbox reaches without a next hop.
	onLink netip.Prefix
	// source is the host's source address for packets to it.
	source netip.Addr
}

func (b SubLinks) neighbors(n model.Network, e model.Endpoint) []neighbor {
	var all []neighbor
	for _, s := range n.Subnets {
		if addr, ok := e.Address(s.Prefix.Addr().Is4()); ok {
			all = append(all, neighbor{addr, s.Prefix, b.source(n, s.Prefix, s.HostAddress())})
		}
	}
	for _, p := range e.Prefixes {
		if source := b.source(n, p, netip.Addr{}); source.IsValid() {
			all = append(all, neighbor{p.Addr(), p, source})
		}
	}
	return all
}

// source returns the host's source address for packets to a sandbox. It is the
// parent's address in the prefix, by which the LAN knows the host. It is own, the
// shim's address, if the parent has none, and if the shim shares the parent's
// hardware address: answers to the parent's address would go to the parent.
func (b SubLinks) source(n model.Network, onLink netip.Prefix, own netip.Addr) netip.Addr {
	i := slices.IndexFunc(n.ParentAddresses, onLink.Contains)
	if i < 0 || !b.OwnMAC || n.VLAN != 0 {
		return own
	}
	return n.ParentAddresses[i]
}

// toParent plans the sandbox's routes to the host's IPv6 addresses on the parent,
// via the shim's link-local address. Linux answers ARP requests for any local
// address on any link, but neighbour solicitations only on the link that has the
// address.
func toParent(n model.Network, e model.Endpoint, onLink netip.Prefix) plan.Plan {
	via := shimLinkLocal(n)
	p := plan.Plan{plan.Address{Link: ShimLink(n.Name), Prefix: netip.PrefixFrom(via, 64)}}
	for _, own := range n.ParentAddresses {
		if n.VLAN == 0 && own.Is6() && onLink.Contains(own) {
			p = append(p, plan.Route{Netns: e.Sandbox, To: Host(own), Via: via, Link: e.InterfaceName()})
		}
	}
	return p
}

// shimLinkLocal returns the shim's IPv6 link-local address. Each host has another
// one, because the hosts may share a LAN.
func shimLinkLocal(n model.Network) netip.Addr {
	h := fnv.New64a()
	h.Write([]byte(n.Name))
	for _, a := range n.ParentAddresses {
		h.Write(a.AsSlice())
	}
	addr := netip.MustParseAddr("fe80::").As16()
	copy(addr[8:], h.Sum(nil))
	return netip.AddrFrom16(addr)
}

func hostAddresses(n model.Network) []netip.Addr {
	var all []netip.Addr
	for _, s := range n.Subnets {
		all = append(all, s.HostAddress())
	}
	return all
}

// Attachment returns how publish modes reach the endpoint. Its answers to all
// clients except the host go directly to the LAN and bypass the host.
func (b SubLinks) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	switch {
	case !b.Shim:
		return plan.Attachment{Closed: fmt.Sprintf("the host reaches no sandbox of a %s network in mode %s: use mode bridge to publish", n.Driver, b.Mode)}
	case len(n.Subnets) == 0:
		return plan.Attachment{Closed: "the network has no subnet, so the host has no address in it: give the network a subnet, with a range that no other host of the LAN uses"}
	}
	a := plan.Attachment{Addresses: e.Addresses, Link: ShimLink(n.Name), Gateways: hostAddresses(n)}
	for _, addr := range e.Addresses {
		a.Bypass = append(a.Bypass, plan.Bypass{From: Default(addr), To: Host(addr)})
	}
	return a
}
