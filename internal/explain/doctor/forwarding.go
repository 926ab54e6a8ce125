package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
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
	return append(all, h.closedLinks()...)
}

// closedLinks reports links that forward no IPv4 packets although the host does, if a port or
// a service needs it.
func (h Host) closedLinks() []Finding {
	if h.Settings[facts.Forward4] == "0" {
		return nil
	}
	var all []Finding
	seen := map[string]bool{}
	for _, to := range h.forwardedTo() {
		up, _ := h.uplink()
		for _, link := range []string{up.Name, h.LinkTo(to.at)} {
			setting := facts.Forwarding(link, true)
			if !to.at.Is4() || h.Settings[setting] != "0" || seen[link] {
				continue
			}
			seen[link] = true
			all = append(all, Finding{Severity: Problem,
				Seen: setting + " is 0, but " + to.why,
				Why:  "the kernel drops every IPv4 packet that arrives on " + link + " and is not for the host itself",
				Fix:  "sysctl -w " + escape.Shell(setting+"=1")})
		}
	}
	return all
}

// needsForwarding returns what needs forwarding, as a clause; "" if nothing does.
func (h Host) needsForwarding(v4 bool) string {
	for _, to := range h.forwardedTo() {
		if to.at.Is4() == v4 {
			return to.why
		}
	}
	return ""
}

// forwarded is an address to which the host forwards packets, and why, as a clause.
type forwarded struct {
	at  netip.Addr
	why string
}

// forwardedTo returns the addresses to which ports and services send packets with the
// kernel's forwarding.
func (h Host) forwardedTo() []forwarded {
	var all []forwarded
	for _, p := range h.Ports {
		translated := slices.Contains(p.Modes, ports.NAT) || slices.Contains(p.Modes, ports.DockerNAT) ||
			slices.Contains(p.Modes, ports.OtherNAT)
		if translated && p.To.IsValid() && !h.hasAddress(p.To) {
			all = append(all, forwarded{p.To, "NAT sends port " + name(p) + " to " + p.To.String()})
		}
	}
	for _, s := range h.Services {
		for _, r := range s.Backends {
			// Programs at the links redirect packets to sandboxes without the kernel's
			// forwarding.
			redirected := s.Plane.Traits().AtLinks && r.Link != ""
			if a := r.At.Addr(); !redirected && !h.hasAddress(a) {
				all = append(all, forwarded{a, fmt.Sprintf("%s sends to %s", called(s), a)})
			}
		}
	}
	return all
}

// hasAddress reports whether the host has the address.
func (h Host) hasAddress(a netip.Addr) bool {
	return h.LinkWith(a) != "" || a.IsLoopback()
}
