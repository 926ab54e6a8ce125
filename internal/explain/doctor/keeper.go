package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"
)

// keeper reports what we have set up on a host where none of our daemons runs.
func keeper(h Host) []Finding {
	var left []string
	if slices.ContainsFunc(h.Rules, func(c rules.Chain) bool { return c.Table == "inet "+plan.Mark }) {
		left = append(left, "the nftables table "+plan.Mark)
	}
	if n := len(h.EBPFMappings); n > 0 {
		left = append(left, count(n, "eBPF lead"))
	}
	ours := 0
	for _, s := range h.Services {
		if s.Service != "" { // IPVS's may be anybody's
			ours++
		}
	}
	if ours > 0 {
		left = append(left, count(ours, "virtual service"))
	}
	if slices.ContainsFunc(h.Links, func(l kernel.InsideLink) bool { return l.Owner != "" }) {
		left = append(left, "links to sandboxes")
	}
	if h.Daemon || len(left) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("Fairlead has set up %s on this host, and its daemon does not run", list(left)),
		Why:  "traffic goes on; but nobody heals what strays, checks real servers, or takes away what belonged to a sandbox that has ended",
		Fix:  "fairlead ls"}}
}
