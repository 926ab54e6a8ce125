package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Claimable returns the addresses of virtual services that are, or should be, on
// links of the host. No neighbour may answer for them.
func (h Host) Claimable() []plan.VirtualAddress {
	var all []plan.VirtualAddress
	for _, s := range h.Balanced {
		for _, a := range s.Addresses {
			if link := s.Link(); link != "" && link != model.Loopback {
				all = append(all, plan.VirtualAddress{Link: link, Addr: a})
			}
		}
	}
	return all
}

// serviceAddress reports other hosts that answer for an address of a virtual
// service.
func serviceAddress(h Host) []Finding {
	var all []Finding
	for _, c := range h.Claims {
		i := slices.IndexFunc(h.Balanced, func(s api.ServiceView) bool {
			return s.Link() == c.Link && slices.Contains(s.Addresses, c.Addr)
		})
		if i < 0 {
			continue
		}
		s := h.Balanced[i]
		f := Finding{Severity: Problem,
			Seen: fmt.Sprintf("on %s, %s also answers for %s of service %s", c.Link, claimant(c), c.Addr, s.Name),
			Why: "each neighbour sends to the host that answered it last, so clients may bypass this host: " +
				"they reach one server without balancing and checks, or no server",
			Fix: fmt.Sprintf("find that host (ip neigh show dev %s; on it: ip address show to %s) and remove the address from it: ip address del %[2]s/LENGTH dev LINK",
				escape.Shell(c.Link), c.Addr)}
		if s.Forward == model.ForwardDirect || s.Forward == model.ForwardTunnel {
			f.Fix += fmt.Sprintf("; if it is the host of a real server of this service, run there: fairlead service add %s ADDRESS:PORT --forward local, "+
				"which puts the address on lo only and sets arp_ignore and arp_announce", escape.Shell(s.Name))
		}
		all = append(all, f)
	}
	return all
}

// claimant names another host by all of its known addresses.
func claimant(c inspect.Claim) string {
	var also []string
	for _, a := range c.Also {
		also = append(also, a.String())
	}
	if len(also) == 0 {
		return c.By
	}
	return c.By + " (" + strings.Join(also, ", ") + ")"
}
