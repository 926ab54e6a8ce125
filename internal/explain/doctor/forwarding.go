package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
)

// forwarding reports a host that does not forward although something needs it.
func forwarding(h Host) []Finding {
	var all []Finding
	for _, family := range []struct {
		setting, name string
		v4            bool
	}{{facts.Forward4, "IPv4", true}, {facts.Forward6, "IPv6", false}} {
		value, known := h.Settings[family.setting]
		if need := h.needsForwarding(family.v4); known && value == "0" && need != "" {
			all = append(all, Finding{Severity: Problem,
				Seen: family.setting + " is 0, but " + need,
				Why:  "the kernel drops every " + family.name + " packet that is not for the host itself",
				Fix:  "sysctl -w " + family.setting + "=1"})
		}
	}
	return all
}

// needsForwarding returns what needs forwarding, as a clause; "" if nothing does.
func (h Host) needsForwarding(v4 bool) string {
	for _, p := range h.Ports {
		translated := slices.Contains(p.Modes, ports.NAT) || slices.Contains(p.Modes, ports.DockerNAT) ||
			slices.Contains(p.Modes, ports.OtherNAT)
		if translated && p.To.IsValid() && p.To.Is4() == v4 && !h.hasAddress(p.To) {
			return "NAT sends port " + name(p) + " to " + p.To.String()
		}
	}
	for _, s := range h.Services {
		for _, r := range s.Backends {
			// Programs at the links redirect packets to sandboxes without the kernel's
			// forwarding.
			redirected := s.Plane.Traits().AtLinks && r.Link != ""
			if a := r.At.Addr(); a.Is4() == v4 && !redirected && !h.hasAddress(a) {
				return fmt.Sprintf("%s sends to %s", called(s), a)
			}
		}
	}
	return ""
}

// hasAddress reports whether the host has the address.
func (h Host) hasAddress(a netip.Addr) bool {
	for _, l := range h.Links {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return a.IsLoopback()
}
