package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"
)

// Path is the way of the packets that sandboxes of a network send to hosts outside, and of the
// answers.
type Path struct {
	// Senders are the network's addresses.
	Senders netip.Prefix
	// Router is the link whose packets the host routes, and Ports are the links of the
	// sandboxes before it.
	Router string
	Ports  []string
	// Uplinks are the links via which the packets may leave.
	Uplinks []string
}

// Decides returns which rule would decide, or may decide, about a TCP or UDP packet on the
// path, to or from any host outside: it drops, rejects or translates the packet, or does
// something that is not followed. It is empty if none would. Rules of tables whose name
// begins with own do not count.
func (rs Ruleset) Decides(path Path, own string) string {
	others := slices.DeleteFunc(slices.Clone(rs), func(c Chain) bool {
		_, table, _ := strings.Cut(c.Table, " ")
		return strings.HasPrefix(table, own)
	})
	for _, up := range path.Uplinks {
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			p := Packet{Proto: proto, Senders: path.Senders, AnyTo: true, Behind: true,
				To: netip.AddrPortFrom(path.Senders.Masked().Addr(), 0)}
			later := p
			later.Established = true
			for _, v := range slices.Concat(others.leaving(p, path, up), others.leaving(later, path, up),
				others.returning(p, path, up)) {
				if cause := v.decides(); cause != "" {
					return cause
				}
			}
		}
	}
	return ""
}

// leaving follows a packet from the sandboxes' links to an uplink.
func (rs Ruleset) leaving(p Packet, path Path, up string) (all []Verdict) {
	p.In = path.Router
	for _, port := range append(slices.Clone(path.Ports), path.Router) {
		all = append(all, rs.Device("ingress", port, p))
	}
	all = append(all, rs.Frame("prerouting", p), rs.Frame("input", p), rs.Filter("prerouting", p))
	if !p.Established {
		all = append(all, rs.Translate("prerouting", p))
	}
	p.Out = up
	all = append(all, rs.Filter("forward", p), rs.Filter("postrouting", p), rs.Device("egress", up, p))
	if p.In = ""; !p.Established {
		all = append(all, rs.Translate("postrouting", p))
	}
	return all
}

// returning follows an answer from the uplink to the sandboxes' links. Before it is
// translated, its destination is an address of the host.
func (rs Ruleset) returning(p Packet, path Path, up string) []Verdict {
	p.Reply, p.In = true, up
	outside := p
	outside.Senders, outside.Local = netip.Prefix{}, true
	p.Out = path.Router
	return []Verdict{rs.Filter("prerouting", outside), rs.Filter("forward", p), rs.Filter("postrouting", p)}
}

// decides describes the rule that makes the verdict more than an acceptance, or may do so.
func (v Verdict) decides() string {
	switch {
	case v.Action != Accept:
		return fmt.Sprintf("%s has the effect %s", v.Cause(), v.Action)
	case !v.Certain && len(v.Doubts) > 0:
		doubt := v.Doubts[0]
		return fmt.Sprintf("%s may have the effect %s", Verdict{By: doubt}.Cause(), doubt.Rule.Action)
	case !v.Certain:
		return "a rule that is not followed may decide"
	}
	return ""
}
