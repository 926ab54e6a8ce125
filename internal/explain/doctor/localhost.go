package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/rules"
)

// localhost reports published ports that answer on 127.0.0.1 but not on ::1, on
// a host where `localhost` means both.
func localhost(h Host) []Finding {
	if !h.LocalhostV6 {
		return nil
	}
	deaf := h.portsThat(func(p ports.Port) bool {
		return !slices.Contains(p.Modes, ports.Host) && p.Reach.Loopback == rules.Yes && !h.answersV6(p)
	})
	if len(deaf) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("on this host localhost is 127.0.0.1 and ::1, but nothing answers on ::1 for %s: %s",
			count(len(deaf), "published port"), names(deaf)),
		Why: "clients that try ::1 first are refused, and fail unless they try the other address. " +
			"NAT cannot redirect ::1; only a proxy or eBPF can answer there",
		Fix: "publish with a mode that answers on ::1: fairlead publish … --via ebpf, or --via proxy; or let clients use 127.0.0.1 instead of localhost"}}
}

// answersV6 reports whether some port of the same number answers on ::1.
func (h Host) answersV6(p ports.Port) bool {
	return slices.ContainsFunc(h.Ports, func(o ports.Port) bool {
		return o.Proto == p.Proto && o.Ports.First <= p.Ports.First && p.Ports.Last <= o.Ports.Last &&
			slices.ContainsFunc(o.Addresses, func(a netip.Addr) bool {
				return a.Is6() &&
					(a.IsUnspecified() || a.IsLoopback())
			})
	})
}
