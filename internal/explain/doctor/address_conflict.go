package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Asked returns the addresses for which the caller asks the host's neighbours (ARP,
// Neighbor Discovery). The answers are Host.Claims.
func (h Host) Asked() []plan.VirtualAddress {
	return slices.Concat(h.Claimable(), h.linkAddresses(), h.gateways())
}

// linkAddresses returns the addresses of the host's links, without those of
// virtual services. It skips the host's end of a sandbox's veth pair, because
// no other host is behind it.
func (h Host) linkAddresses() []plan.VirtualAddress {
	var all []plan.VirtualAddress
	for _, l := range h.Links {
		if !l.Up || l.Name == model.Loopback || l.Owner != "" && l.Kind == "veth" {
			continue
		}
		for _, p := range l.Addresses {
			a := plan.VirtualAddress{Link: l.Name, Addr: p.Addr()}
			if (p.Addr().Is4() || l.LinkLocal) && !slices.Contains(h.Claimable(), a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// withLength returns an address of a link with its prefix length, without which
// ip-address(8) does not delete an IPv6 address.
func (h Host) withLength(a plan.VirtualAddress) netip.Prefix {
	for _, l := range h.Links {
		for _, p := range l.Addresses {
			if l.Name == a.Link && p.Addr() == a.Addr {
				return p
			}
		}
	}
	return netip.PrefixFrom(a.Addr, a.Addr.BitLen())
}

// addressConflict reports other hosts that answer for an address of this host.
func addressConflict(h Host) []Finding {
	addresses := h.linkAddresses()
	var all []Finding
	for _, c := range h.Claims {
		if !slices.Contains(addresses, c.VirtualAddress) {
			continue
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("on %s, %s answers for %s, which is an address of this host", c.Link, claimant(c),
				c.Addr),
			Why: "each neighbour sends to the host that answered it last, so connections to this host hang or break at random",
			Fix: fmt.Sprintf("give one of the two hosts another address; to remove it from this host: ip address del %s dev %s",
				h.withLength(c.VirtualAddress), escape.Shell(c.Link))})
	}
	return all
}
