package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// localPorts reports published ports, and those of outbound connections, that the kernel may
// assign to any client as its source port.
func localPorts(h Host) []Finding {
	var local model.PortRange
	if _, err := fmt.Sscan(h.Settings[facts.LocalPorts], &local.First, &local.Last); err != nil {
		return nil
	}
	if len(h.Outbound) > 0 && (local.First < plan.FirstHostPort || local.Last > plan.LastHostPort) {
		return append(outboundPorts(local), publishedPorts(h, local)...)
	}
	return publishedPorts(h, local)
}

// outboundPorts reports that the kernel may assign the ports of outbound connections that
// Fairlead's eBPF programs translate.
func outboundPorts(local model.PortRange) []Finding {
	return []Finding{{Severity: Problem,
		Seen: fmt.Sprintf("the kernel chooses clients' source ports from %s (%s), and a network has outbound ebpf, which uses "+
			"the ports %s", local, facts.LocalPorts, plan.OutboundPorts),
		Why: "answers to a client of this host may be redirected to a sandbox that talks to the same address and port",
		Fix: fmt.Sprintf("sysctl -w %s='%d %d'", facts.LocalPorts, plan.FirstHostPort, plan.LastHostPort)}}
}

// publishedPorts reports published ports in the range.
func publishedPorts(h Host, local model.PortRange) []Finding {
	reserved := reservedPorts(h.Settings[facts.ReservedPorts])
	var clash []ports.Port
	var add []string
	for _, p := range h.Ports {
		inside := model.PortRange{First: max(p.Ports.First, local.First), Last: min(p.Ports.Last, local.Last)}
		safe := slices.ContainsFunc(reserved,
			func(r model.PortRange) bool { return r.First <= inside.First && inside.Last <= r.Last })
		if slices.Contains(p.Modes, ports.Host) || p.Service != nil || inside.First > inside.Last || safe {
			continue
		}
		clash = append(clash, p)
		add = append(add, inside.String())
	}
	if len(clash) == 0 {
		return nil
	}
	if old := h.Settings[facts.ReservedPorts]; old != "" {
		add = append([]string{old}, add...)
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("published ports are in the range %s, from which the kernel chooses clients' source ports (%s): %s",
			local, facts.LocalPorts, names(clash)),
		Why: "a client of this host may use such a port just when it should be published (\"address already in use\"), " +
			"the kernel may give a port published via ebpf to another program, and answers to such a program or client " +
			"may be redirected as if they were for the published port",
		Fix: "sysctl -w " + facts.ReservedPorts + "=" + strings.Join(add, ",")}}
}

func reservedPorts(text string) []model.PortRange {
	var all []model.PortRange
	for _, part := range strings.Split(text, ",") {
		if r, err := model.ParsePortRange(part); err == nil {
			all = append(all, r)
		}
	}
	return all
}
