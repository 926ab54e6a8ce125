package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/explain/facts"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// somewhere are addresses out in the world, of those that are for examples
// (RFC 5737, RFC 3849).
var somewhere = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.1:443"), netip.MustParseAddrPort("[2001:db8:ffff::1]:443")}

// notForwarded reports networks of ours whose sandboxes the host's firewall does
// not let out. Docker's is of that kind where Docker has turned forwarding on:
// it makes DROP the policy of FORWARD, and excepts its own bridges.
func notForwarded(h Host) []Finding {
	up, ok := h.uplink()
	if !ok {
		return nil
	}
	var all []Finding
	for _, l := range h.Links {
		if l.Owner == "" || !l.Up || l.Name == up.Name {
			continue
		}
		for _, to := range somewhere {
			v, known := h.leaving(l, up, to)
			if known && v.Certain && (v.Action == rules.Drop || v.Action == rules.Reject) && !strings.HasSuffix(v.By.Table, " "+plan.Mark) {
				all = append(all, h.shut(l, v, to.Addr().Is4()))
			}
		}
	}
	return all
}

// leaving follows the first packet of a connection from behind a link out into
// the world; false if there is nobody to send it.
func (h Host) leaving(l, up kernel.InsideLink, to netip.AddrPort) (rules.Verdict, bool) {
	for _, p := range l.Addresses {
		if p.Addr().Is4() != to.Addr().Is4() || h.Settings[map[bool]string{true: facts.Forward4, false: facts.Forward6}[p.Addr().Is4()]] == "0" {
			continue
		}
		from := netip.AddrPortFrom(p.Addr().Next(), 40000)
		return h.Rules.Filter("forward", rules.Packet{Proto: model.TCP, From: from, To: to, In: l.Name, Out: up.Name}), true
	}
	return rules.Verdict{}, false
}

// shut says that a firewall does not let out what comes by a link.
func (h Host) shut(l kernel.InsideLink, v rules.Verdict, v4 bool) Finding {
	tool, table := "iptables", "ip filter"
	if !v4 {
		tool, table = "ip6tables", "ip6 filter"
	}
	f := Finding{Severity: Problem,
		Seen: fmt.Sprintf("%s drops what sandboxes behind %s send out", v.Cause(), l.Name),
		Why:  "they reach nobody but this host, and ports that are published via nat do not answer others; Fairlead obeys the host's firewall for what the host forwards, and so do its answers",
		Fix:  fmt.Sprintf("let through in %s (%s) what comes from %s, and what belongs to its connections", escape.Shell(v.By.Chain), escape.Shell(v.By.Table), escape.Shell(l.Name))}
	switch {
	case h.hasUFW(table):
		f.Fix = fmt.Sprintf("ufw route allow in on %[1]s && ufw route allow out on %[1]s", escape.Shell(l.Name))
		return f
	case v.By.Table == "inet firewalld":
		f.Fix = fmt.Sprintf("firewall-cmd --permanent --new-zone=fairlead; firewall-cmd --permanent --zone=fairlead --add-interface=%s; "+
			"firewall-cmd --permanent --new-policy=fairlead-out; firewall-cmd --permanent --policy=fairlead-out --add-ingress-zone=fairlead --add-egress-zone=ANY --set-target=ACCEPT; firewall-cmd --reload", escape.Shell(l.Name))
		return f
	}
	chain := "DOCKER-USER"
	if _, is := h.Rules.Find(table, chain); !is {
		chain = "FORWARD"
	}
	if v.By.Table == table {
		f.Fix = fmt.Sprintf("%[1]s -I %[2]s -i %[3]s -j ACCEPT && %[1]s -I %[2]s -o %[3]s -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT", tool, chain, escape.Shell(l.Name))
	}
	return f
}

// hasUFW reports whether ufw filters the host: its chain for the rules of
// `ufw route` is in the table, or in that of legacy iptables.
func (h Host) hasUFW(table string) bool {
	chain := "ufw-user-forward"
	if strings.HasPrefix(table, "ip6") {
		chain = "ufw6-user-forward"
	}
	for _, t := range []string{table, table + rules.LegacyMark} {
		if _, is := h.Rules.Find(t, chain); is {
			return true
		}
	}
	return false
}
