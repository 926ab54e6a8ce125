package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/explain/ports"
)

// bypassed reports a firewall that published ports go past.
func bypassed(h Host) []Finding {
	var past []ports.Port
	for _, p := range h.Ports {
		if slices.ContainsFunc(p.Reaches(), func(r ports.Reach) bool { return r.Firewall == ports.Bypassed }) {
			past = append(past, p)
		}
	}
	if len(past) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("the firewall drops what it does not know, and the LAN reaches %s all the same: %s", count(len(past), "published port"), names(past)),
		Why:  "NAT and eBPF lead packets on before the rules for the host's own ports (hook input: ufw, firewalld, own rules) see them",
		Fix:  "publish by a way that obeys them (fairlead publish … --via proxy), or on 127.0.0.1 only; with Docker, filter in the chain DOCKER-USER"}}
}
