package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/model"
)

// localPorts reports published ports that the kernel may give to any client.
func localPorts(h Host) []Finding {
	var local model.PortRange
	if _, err := fmt.Sscan(h.Settings[facts.LocalPorts], &local.First, &local.Last); err != nil {
		return nil
	}
	reserved := reservedPorts(h.Settings[facts.ReservedPorts])
	var clash []ports.Port
	var add []string
	for _, p := range h.Ports {
		inside := model.PortRange{First: max(p.Ports.First, local.First), Last: min(p.Ports.Last, local.Last)}
		safe := slices.ContainsFunc(reserved, func(r model.PortRange) bool { return r.First <= inside.First && inside.Last <= r.Last })
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
		Seen: fmt.Sprintf("the kernel gives clients the ports %s (%s), and published are %s", local, facts.LocalPorts, names(clash)),
		Why:  "a client of this host may hold such a port when it is to be published (\"address already in use\"), and packets of its connection may be taken for the publish",
		Fix:  "sysctl -w " + facts.ReservedPorts + "=" + strings.Join(add, ",")}}
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
