package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/model"
)

// forwarding reports a host that does not forward while something needs it.
func forwarding(h Host) []Finding {
	var all []Finding
	for _, family := range []struct {
		setting, name string
		v4            bool
	}{{facts.Forward4, "IPv4", true}, {facts.Forward6, "IPv6", false}} {
		value, known := h.Settings[family.setting]
		if need := h.needsForwarding(family.v4); known && value == "0" && need != "" {
			all = append(all, Finding{Severity: Problem,
				Seen: family.setting + " is 0, and " + need,
				Why:  "the kernel drops every " + family.name + " packet that is for another than the host itself",
				Fix:  "sysctl -w " + family.setting + "=1"})
		}
	}
	return all
}

// needsForwarding says what is behind the host; empty for nothing.
func (h Host) needsForwarding(v4 bool) string {
	for _, p := range h.Ports {
		translated := slices.Contains(p.Modes, ports.NAT) || slices.Contains(p.Modes, ports.DockerNAT) || slices.Contains(p.Modes, ports.OtherNAT)
		if translated && p.To.IsValid() && p.To.Is4() == v4 && !h.hasAddress(p.To) {
			return "port " + name(p) + " is led to " + p.To.String() + " by NAT"
		}
	}
	for _, s := range h.Services {
		for _, r := range s.Backends.List() {
			// eBPF puts packets into sandboxes itself.
			past := s.Plane == model.PlaneEBPF && r.Link != ""
			if a := r.At.Addr(); a.Is4() == v4 && !past && !h.hasAddress(a) {
				return fmt.Sprintf("%s leads to %s", called(s), a)
			}
		}
	}
	return ""
}

// hasAddress reports whether the address is the host's.
func (h Host) hasAddress(a netip.Addr) bool {
	for _, l := range h.Links {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return a.IsLoopback()
}
