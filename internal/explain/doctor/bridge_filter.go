package doctor

import (
	"fmt"
	"strings"

	"fairlead/internal/explain/facts"
)

// bridgeFilter reports bridges whose frames pass the rules for IP packets.
func bridgeFilter(h Host) []Finding {
	var on, off []string
	for _, name := range []string{facts.BridgeFilter4, facts.BridgeFilter6} {
		if h.Settings[name] == "1" {
			on, off = append(on, name), append(off, name+"=0")
		}
	}
	var bridges []string
	for _, l := range h.Links {
		if l.Kind == "bridge" {
			bridges = append(bridges, l.Name)
		}
	}
	if len(on) == 0 || len(bridges) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("br_netfilter is on (%s) for the bridges %s", strings.Join(on, ", "), list(bridges)),
		Why: "every frame between two containers of a bridge passes the host's rules and connection tracking as if it were routed. " +
			"Docker without inter-container communication (--icc=false) and Kubernetes' kube-proxy need that; most other programs do not",
		Cost: &bridgeFilterCost,
		Fix:  "sysctl -w " + strings.Join(off, " ")}}
}
