package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// icmpBlocked reports firewalls that drop the ICMP messages that path MTU
// discovery needs.
func icmpBlocked(h Host) []Finding {
	up, ok := h.uplink()
	if !ok {
		return nil
	}
	var all []Finding
	for _, from := range distant {
		if v, found := h.tooBig(up, from.Addr()); found {
			all = append(all, h.blocked(v, from.Addr().Is4()))
		}
	}
	return all
}

// tooBig follows an ICMP message "packet too big" to the host and to sandboxes,
// and returns the first verdict that drops it. Sandboxes whose packets the host
// does not forward at all are skipped.
func (h Host) tooBig(up inspect.InsideLink, router netip.Addr) (rules.Verdict, bool) {
	lost := func(hook string, p rules.Packet) (rules.Verdict, bool) {
		v := h.Rules.Filter(hook, p)
		return v, v.Certain && (v.Action == rules.Drop || v.Action == rules.Reject)
	}
	for _, l := range h.Links {
		for _, a := range l.Addresses {
			if a.Addr().Is4() != router.Is4() || !l.Up || l.Name == model.Loopback {
				continue
			}
			p := rules.Packet{Proto: model.TCP, From: netip.AddrPortFrom(router, 0),
				To: netip.AddrPortFrom(a.Addr(), 0),
				In: up.Name, Local: true, TooBig: true}
			for _, hook := range []string{"prerouting", "input"} {
				if v, is := lost(hook, p); l.Name == up.Name && is {
					return v, true
				}
			}
			if out, known := h.leaving(l, up, netip.AddrPortFrom(router, 443)); l.Owner == "" || !known ||
				out.Action != rules.Accept {
				continue
			}
			p.To, p.Out, p.Local = netip.AddrPortFrom(a.Addr().Next(), 0), l.Name, false
			if v, is := lost("forward", p); is {
				return v, true
			}
		}
	}
	return rules.Verdict{}, false
}

// blocked reports the rule that drops the messages, and how to accept them. For
// IPv6, the fix also accepts Neighbor Discovery, without which no host is
// reachable.
func (h Host) blocked(v rules.Verdict, v4 bool) Finding {
	message, kinds, tool, option := "ICMP \"fragmentation needed\"", []string{"destination-unreachable"}, "iptables",
		"-p icmp --icmp-type"
	match := "icmp type"
	if !v4 {
		message, kinds = "ICMPv6 \"packet too big\"",
			[]string{"packet-too-big", "nd-neighbor-solicit", "nd-neighbor-advert"}
		tool, option, match = "ip6tables", "-p ipv6-icmp --icmpv6-type", "icmpv6 type"
	}
	table, legacy := strings.CutSuffix(v.By.Table, rules.LegacyMark)
	if legacy {
		tool += "-legacy"
	}
	family, name, _ := strings.Cut(table, " ")
	f := Finding{Severity: Warning,
		Seen: fmt.Sprintf("%s drops %s", v.Cause(), message),
		Why:  "path MTU discovery fails: connections over a path with a smaller MTU open, and then hang",
		Fix: fmt.Sprintf("nft insert rule %s %s %s %s '{ %s }' accept", family, escape.Shell(name),
			escape.Shell(v.By.Chain),
			match, strings.Join(kinds, ", "))}
	if h.isIPTables(v.By.Table) {
		var lines []string
		for _, k := range kinds {
			k = strings.NewReplacer("nd-neighbor-solicit", "neighbour-solicitation", "nd-neighbor-advert",
				"neighbour-advertisement").Replace(k)
			lines = append(lines, fmt.Sprintf("%s -t %s -I %s %s %s -j ACCEPT", tool, escape.Shell(name),
				escape.Shell(v.By.Chain), option, k))
		}
		f.Fix = strings.Join(lines, " && ")
	}
	return f
}
