package ports

import (
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// translations adds a port for each NAT rule that is for the host's addresses.
func (b *builder) translations() {
	for _, t := range b.Rules.Translations() {
		for _, host := range b.hosts(t) {
			p := Port{Proto: t.Proto, Addresses: []netip.Addr{host}, Ports: t.Ports,
				To: t.Rule.To, ToPorts: t.Rule.ToPorts, Modes: []Mode{modeOf(t)}}
			if p.ToPorts == (model.PortRange{}) {
				p.ToPorts = p.Ports
			}
			if p.Modes[0] != NAT {
				p.Rule = t.Table + " " + t.Chain + ": " + t.Rule.String()
			}
			b.ports = append(b.ports, p)
		}
	}
}

// hosts returns the addresses of the host that the rule is for. It returns none
// if the rule is for other addresses, e.g. those of a cluster's services.
func (b *builder) hosts(t rules.Translation) []netip.Addr {
	if t.Addr.IsValid() && t.Addr.Bits() > 0 {
		if t.Addr.IsSingleIP() && b.local(t.Addr.Addr()) {
			return []netip.Addr{t.Addr.Addr()}
		}
		return nil
	}
	var all []netip.Addr
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		family, _, _ := strings.Cut(t.Table, " ")
		fits := family == "inet" || (family == "ip") == a.Is4()
		switch {
		case t.Rule.To.IsValid():
			fits = fits && t.Rule.To.Is4() == a.Is4()
		case t.Addr.IsValid():
			fits = fits && t.Addr.Addr().Is4() == a.Is4()
		}
		if fits {
			all = append(all, a)
		}
	}
	return all
}

// local reports whether the host has the address.
func (b *builder) local(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	for _, l := range b.Links {
		if slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return true
		}
	}
	return false
}

// modeOf finds out from a rule's table and chain which program made it, and returns
// the mode. Docker's rules are in the iptables chain DOCKER, or in the nftables tables
// docker-bridges.
func modeOf(t rules.Translation) Mode {
	_, table, _ := strings.Cut(t.Table, " ")
	switch {
	case table == plan.Mark:
		return NAT
	case t.Chain == "DOCKER", table == "docker-bridges":
		return DockerNAT
	}
	return OtherNAT
}

// mappings adds a port for each port mapping of the eBPF data path.
func (b *builder) mappings() {
	for _, m := range b.EBPFMappings {
		b.ports = append(b.ports, Port{Proto: m.Proto, Addresses: []netip.Addr{m.Host}, Ports: m.Ports,
			To: m.To, ToPorts: m.ToPorts, Modes: []Mode{EBPF}})
	}
}
