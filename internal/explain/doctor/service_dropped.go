package doctor

import (
	"fmt"

	"fairlead/internal/kernel/rules"
)

// serviceDropped reports virtual services whose packets from the LAN a firewall
// drops, for every real server.
func serviceDropped(h Host) []Finding {
	var all []Finding
	for _, p := range h.Ports {
		if p.Service == nil || len(p.Service.Reals) == 0 || p.Reach.LAN != rules.No || p.Reach.Decided == "" {
			continue
		}
		hook := "FORWARD"
		if p.Service.Plane.Traits().AtInput {
			hook = "INPUT"
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("a firewall drops packets from the LAN to port %s at %s: %s", name(p), p.Addresses[0],
				p.Reach.Decided),
			Why: fmt.Sprintf("with the data plane %s, packets pass the rules of %s; clients wait until they time out",
				p.Service.Plane, hook),
			Fix: "accept translated connections there (nft: ct status dnat accept; iptables: -m conntrack --ctstate DNAT -j ACCEPT), " +
				"or use the data plane ebpf, which bypasses these rules"})
	}
	return all
}
