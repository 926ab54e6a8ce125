package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/rules"
)

// localhost reports published ports that answer on 127.0.0.1 and not on ::1,
// where `localhost` means both.
func localhost(h Host) []Finding {
	if !h.LocalhostV6 {
		return nil
	}
	var deaf []ports.Port
	for _, p := range h.Ports {
		published := !slices.Contains(p.Modes, ports.Host)
		if published && p.Reach.Loopback == rules.Yes && !h.answersV6(p) {
			deaf = append(deaf, p)
		}
	}
	if len(deaf) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("localhost is 127.0.0.1 and ::1 here, and nobody answers on ::1 for %s: %s", count(len(deaf), "published port"), names(deaf)),
		Why:  "clients that try ::1 first are refused; those that do not try the other address fail. NAT cannot lead ::1 anywhere, so only a proxy or eBPF can answer there",
		Fix:  "publish by a way that answers there: fairlead publish … --via ebpf, or proxy; or name 127.0.0.1 instead of localhost"}}
}

// answersV6 reports whether some port of the same number answers on ::1.
func (h Host) answersV6(p ports.Port) bool {
	return slices.ContainsFunc(h.Ports, func(o ports.Port) bool {
		return o.Proto == p.Proto && o.Ports.First <= p.Ports.First && p.Ports.Last <= o.Ports.Last &&
			slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool { return a.Is6() && (a.IsUnspecified() || a.IsLoopback()) })
	})
}
