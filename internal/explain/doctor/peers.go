package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/driver"
	"fairlead/internal/escape"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// between is traffic between two sandboxes of one network that passes the host's
// rules for forwarded packets.
type between struct {
	network string
	in, out string
	from    netip.Addr
	to      netip.Addr
	// bridged means that the packets stay on a bridge.
	bridged bool
}

// peersDropped reports networks whose sandboxes do not reach each other, because the
// host's firewall drops their packets: those of a routed network, and those on a
// bridge with br_netfilter.
func peersDropped(h Host) []Finding {
	var all []Finding
	for _, b := range slices.Concat(h.bridgedPeers(), h.routedPeers()) {
		v := h.Rules.Filter("forward", rules.Packet{Proto: model.TCP, From: netip.AddrPortFrom(b.from, 40000),
			To: netip.AddrPortFrom(b.to, 80), In: b.in, Out: b.out})
		if v.Certain && (v.Action == rules.Drop || v.Action == rules.Reject) &&
			!strings.HasSuffix(v.By.Table, " "+plan.Mark) {
			all = append(all, h.peerDropped(b, v))
		}
	}
	return all
}

// bridgedPeers returns the traffic on Fairlead's bridges whose frames pass the rules
// for IP packets.
func (h Host) bridgedPeers() (all []between) {
	for _, l := range h.Links {
		if l.Owner == "" || l.Kind != string(plan.Bridge) || !l.Up {
			continue
		}
		for _, p := range l.Addresses {
			setting := map[bool]string{true: facts.BridgeFilter4, false: facts.BridgeFilter6}[p.Addr().Is4()]
			if h.Settings[setting] == "1" {
				from := p.Addr().Next()
				all = append(all, between{l.Owner, l.Name, l.Name, from, from.Next(), true})
			}
		}
	}
	return all
}

// routedPeers returns for each family of each routed network the traffic between two
// of its sandboxes, if it has two.
func (h Host) routedPeers() (all []between) {
	type family struct {
		network string
		v4      bool
	}
	first, done := map[family]between{}, map[family]bool{}
	for _, a := range h.Attachments {
		link := driver.VethLink(a.Name)
		if !a.Driver.Traits().RoutesPeers || !slices.ContainsFunc(h.Links,
			func(l inspect.InsideLink) bool { return l.Name == link && l.Up }) {
			continue
		}
		for _, addr := range a.Addresses {
			f := family{a.Network, addr.Is4()}
			other, has := first[f]
			if !has {
				first[f] = between{network: a.Network, in: link, from: addr}
			} else if !done[f] {
				other.out, other.to, done[f] = link, addr, true
				all = append(all, other)
			}
		}
	}
	return all
}

// peerDropped reports that a firewall drops what sandboxes of a network send to each
// other.
func (h Host) peerDropped(b between, v rules.Verdict) Finding {
	table, family := "ip filter", "IPv4"
	if b.from.Is6() {
		table, family = "ip6 filter", "IPv6"
	}
	f := Finding{Severity: Problem,
		Seen: fmt.Sprintf("%s drops what sandboxes of network %s send to each other over %s", v.Cause(), b.network,
			family),
		Why: "the sandboxes do not reach each other; the host routes their packets, and these obey its firewall",
		Fix: fmt.Sprintf("in %s (%s), accept packets from and to the subnet of network %s", v.By.Chain, v.By.Table,
			b.network)}
	if !b.bridged {
		return f
	}
	f.Why = "the sandboxes do not reach each other; br_netfilter makes frames on the bridge obey the host's firewall"
	link := escape.Shell(b.in)
	f.Fix = fmt.Sprintf("in %s (%s), accept packets from %[3]s to %[3]s", v.By.Chain, v.By.Table, link)
	if command, ok := h.accept(v, within(b.in)); ok {
		f.Fix = command
	}
	if h.hasUFW(table) {
		f.Seen, f.Fix = "ufw: "+f.Seen, fmt.Sprintf("ufw route allow in on %[1]s out on %[1]s", link)
	}
	return f
}
