package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/explain/ports"
)

// bypassed reports a firewall that packets to published ports bypass.
func bypassed(h Host) []Finding {
	past := h.portsThat(func(p ports.Port) bool {
		return slices.ContainsFunc(p.Reaches(), func(r ports.Reach) bool { return r.Firewall == ports.Bypassed })
	})
	if len(past) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("the firewall drops packets that no rule accepts, but the LAN reaches %s: %s",
			count(len(past), "published port"), names(past)),
		Why: "NAT and eBPF redirect the packets before they reach the rules for the host's own ports (hook input: ufw, firewalld, your own rules)",
		Fix: "publish with a mode that obeys these rules (fairlead publish … --via proxy), or on 127.0.0.1 only; " +
			"for ports that Docker publishes, filter in the chain DOCKER-USER"}}
}
