package doctor

import (
	"fmt"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// serviceDropped reports virtual services whose packets from the LAN a firewall
// drops on their way to every real server.
func serviceDropped(h Host) []Finding {
	var all []Finding
	for _, p := range h.Ports {
		if p.Service == nil || len(p.Service.Reals) == 0 || p.Reach.LAN != rules.No || p.Reach.Decided == "" {
			continue
		}
		hook := "FORWARD"
		if p.Service.Plane == model.PlaneIPVS {
			hook = "INPUT"
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("a firewall drops what the LAN sends to port %s at %s: %s", name(p), p.Addresses[0], p.Reach.Decided),
			Why:  fmt.Sprintf("the plane %s sends packets on through the rules of %s; its clients wait until they give up", p.Service.Plane, hook),
			Fix:  "accept there what belongs to connections that were led (nft: ct status dnat accept; iptables: -m conntrack --ctstate DNAT -j ACCEPT), or use the plane ebpf, which goes past"})
	}
	return all
}
