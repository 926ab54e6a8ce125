package doctor

import (
	"fmt"
	"strings"

	"fairlead/internal/explain/ports"
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
		hook, fix := "FORWARD", "accept translated connections there (nft: ct status dnat accept; "+
			"iptables: -m conntrack --ctstate DNAT -j ACCEPT)"
		if p.Service.Plane.Traits().AtInput {
			hook, fix = "INPUT", acceptAddress(p)
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("a firewall drops packets from the LAN to port %s at %s: %s", name(p), p.Addresses[0],
				p.Reach.Decided),
			Why: fmt.Sprintf("with the data plane %s, packets pass the rules of %s; clients wait until they time out",
				p.Service.Plane, hook),
			Fix: fix + ", or use the data plane ebpf, which bypasses these rules"})
	}
	return all
}

// acceptAddress returns the fix for a service whose packets pass INPUT: they are not translated
// there yet.
func acceptAddress(p ports.Port) string {
	at, family, tool := p.Addresses[0], "ip", "iptables"
	if at.Is6() {
		family, tool = "ip6", "ip6tables"
	}
	return fmt.Sprintf("accept packets to the service there (nft: %s daddr %s %s dport %s accept; %s: -d %s -p %s --dport %s -j ACCEPT)",
		family, at, p.Proto, p.Ports, tool, at, p.Proto, strings.ReplaceAll(p.Ports.String(), "-", ":"))
}
