package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// routeLocalnet reports links through which other hosts or containers reach
// 127.0.0.0/8.
func routeLocalnet(h Host) []Finding {
	var all []Finding
	for _, l := range h.Links {
		setting := facts.RouteLocalnet(l.Name)
		if h.Settings[facts.RouteLocalnet("all")] == "1" {
			setting = facts.RouteLocalnet("all")
		}
		if l.Kind == "loopback" || !l.Up || h.Settings[setting] != "1" || h.guarded(l) {
			continue
		}
		f := Finding{Severity: Problem,
			Seen: fmt.Sprintf("%s is 1, and no rule drops packets for 127.0.0.0/8 that arrive on %s", setting, l.Name),
			Why:  "machines on that link reach services that listen on 127.0.0.1 only",
			Fix:  "sysctl -w " + escape.Shell(setting+"=0")}
		if l.Kind == "bridge" {
			f.Severity = Warning
			f.Why = "containers on that bridge, and machines with a route to it, reach services that listen on 127.0.0.1 only; " +
				"without the setting, ports that are published by NAT do not answer on 127.0.0.1"
			f.Fix = "nft " +
				escape.Shell(fmt.Sprintf("add table inet localnet; add chain inet localnet in { type filter hook input priority raw; }; "+
					"add rule inet localnet in iifname \"%s\" ip daddr 127.0.0.0/8 ct state new drop", l.Name))
			if strings.ContainsAny(l.Name, "\"*\\") || escape.Line(l.Name) != l.Name {
				f.Fix = "rename the link: nftables cannot express its name"
			}
		}
		all = append(all, f)
	}
	return all
}

// guarded reports whether a rule drops a packet for 127.0.0.1 from the link.
func (h Host) guarded(l inspect.InsideLink) bool {
	packet := rules.Packet{Proto: model.TCP, To: netip.MustParseAddrPort("127.0.0.1:1"), In: l.Name, Local: true}
	for _, hook := range []string{"prerouting", "input"} {
		if v := h.Rules.Filter(hook, packet); v.Action == rules.Drop || v.Action == rules.Reject {
			return true
		}
	}
	return false
}
