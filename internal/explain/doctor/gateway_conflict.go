package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/plan"
)

// gateways returns the default gateways, each with its link.
func (h Host) gateways() []plan.VirtualAddress {
	var all []plan.VirtualAddress
	for _, r := range h.Routes {
		g := plan.VirtualAddress{Link: r.Link, Addr: r.Via}
		i := slices.IndexFunc(h.Links, func(l inspect.InsideLink) bool { return l.Name == r.Link })
		if r.To.Bits() == 0 && r.Via.IsValid() && i >= 0 && (r.Via.Is4() || h.Links[i].LinkLocal) &&
			!slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// gatewayConflict reports default gateways for whose address several hosts
// answer, or whose address this host has itself.
func gatewayConflict(h Host) []Finding {
	var all []Finding
	for _, g := range h.gateways() {
		var by []string
		for _, c := range h.Claims {
			if c.VirtualAddress == g {
				by = append(by, claimant(c))
			}
		}
		if len(by) > 1 {
			all = append(all, Finding{Severity: Problem,
				Seen: fmt.Sprintf("on %s, %d hosts answer for the default gateway %s: %s", g.Link, len(by), g.Addr,
					list(by)),
				Why: "this host and its containers send to the one that answered last; if that is not the router, it drops or reads their packets",
				Fix: fmt.Sprintf("find out which one is the router, and remove the address from the others; until then: ip neigh replace %s lladdr MAC-OF-THE-ROUTER dev %s nud permanent",
					g.Addr, escape.Shell(g.Link))})
		}
		for _, l := range h.Links {
			has := slices.IndexFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == g.Addr })
			if has >= 0 {
				all = append(all, h.gatewayIsLocal(g, l, l.Addresses[has]))
			}
		}
	}
	return all
}

// gatewayIsLocal reports that a link of this host has the gateway's address.
func (h Host) gatewayIsLocal(g plan.VirtualAddress, l inspect.InsideLink, p netip.Prefix) Finding {
	f := Finding{Severity: Problem,
		Seen: fmt.Sprintf("%s has the address %s, which is also the default gateway via %s", l.Name, g.Addr, g.Link),
		Why:  "this host answers for its own router: packets to the router's address (DNS, often) do not reach the router, and neighbours may send their traffic to this host",
		Fix:  fmt.Sprintf("ip address del %s dev %s", p, escape.Shell(l.Name))}
	if l.Owner != "" {
		f.Fix = fmt.Sprintf("give network %s a subnet that does not contain %s: fairlead network create %[1]s --subnet SUBNET, with the other options that the network has",
			escape.Shell(networkName(l.Owner)), g.Addr)
	}
	return f
}
