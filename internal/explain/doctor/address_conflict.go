package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Asked are the addresses for which the neighbours of the host are asked.
func (h Host) Asked() []plan.VirtualAddress {
	return slices.Concat(h.Claimable(), h.ownAddresses(), h.gateways())
}

// ownAddresses are the addresses of the host's links, without those of virtual
// services. The host's ends of sandboxes' own links are left out: nobody else
// is behind them.
func (h Host) ownAddresses() []plan.VirtualAddress {
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

// addressConflict reports other hosts that answer for the host's own addresses.
func addressConflict(h Host) []Finding {
	own := h.ownAddresses()
	var all []Finding
	for _, c := range h.Claims {
		if !slices.Contains(own, c.VirtualAddress) {
			continue
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("on %s, %s answers for %s, which is an address of this host", c.Link, claimant(c), c.Addr),
			Why:  "each neighbour sends to the host that it heard of last, so connections to this host hang or break at random",
			Fix:  fmt.Sprintf("give one of the two hosts another address; on this host: ip address del %s dev %s", c.Addr, escape.Shell(c.Link))})
	}
	return all
}
