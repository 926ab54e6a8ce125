package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"
)

// startDaemon is the command that starts the daemon on a host with systemd.
const startDaemon = "systemctl start fairlead"

// noDaemon reports Fairlead's objects on a host where no daemon of Fairlead runs.
func noDaemon(h Host) []Finding {
	var left []string
	if slices.ContainsFunc(h.Rules, func(c rules.Chain) bool { return c.Table == "inet "+plan.Mark }) {
		left = append(left, "the nftables table "+plan.Mark)
	}
	if n := len(h.EBPFMappings); n > 0 {
		left = append(left, count(n, "eBPF port mapping"))
	}
	n := 0
	for _, s := range h.Services {
		if s.Service != "" { // IPVS services without a name belong to other programs
			n++
		}
	}
	if n > 0 {
		left = append(left, count(n, "virtual service"))
	}
	if slices.ContainsFunc(h.Links, func(l inspect.InsideLink) bool { return l.Owner != "" }) {
		left = append(left, "links to sandboxes")
	}
	if h.Daemon || len(left) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("this host has objects of Fairlead (%s), but its daemon does not run", list(left)),
		Why: "the kernel still forwards traffic, but without the daemon no changed object is repaired, no real server is checked, " +
			"and no objects of ended sandboxes are removed",
		Fix: startDaemon}}
}
