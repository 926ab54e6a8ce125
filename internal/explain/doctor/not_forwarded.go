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

// distant are addresses beyond the uplink, from the ranges for documentation
// (RFC 5737, RFC 3849).
var distant = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.1:443"),
	netip.MustParseAddrPort("[2001:db8:ffff::1]:443")}

// notForwarded reports Fairlead's networks whose sandboxes the host's firewall
// does not let out. Docker causes this if it has turned forwarding on: it sets
// the policy of FORWARD to DROP, and accepts only its own bridges.
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
		for _, to := range distant {
			v, known := h.leaving(l, up, to)
			if known && v.Certain && (v.Action == rules.Drop || v.Action == rules.Reject) &&
				!strings.HasSuffix(v.By.Table, " "+plan.Mark) {
				if to.Addr().Is4() && h.hasOutbound(l.Name) {
					all = append(all, outboundBypasses(l, v))
				} else {
					all = append(all, h.egressDropped(l, v, to.Addr().Is4()))
				}
			}
		}
	}
	return all
}

// hasOutbound reports whether Fairlead's eBPF programs translate connections that the
// kernel would route from the link.
func (h Host) hasOutbound(link string) bool {
	return slices.ContainsFunc(h.Outbound, func(o plan.Outbound) bool { return o.Router == link })
}

// outboundBypasses reports a firewall that connections of sandboxes behind a link bypass.
func outboundBypasses(l inspect.InsideLink, v rules.Verdict) Finding {
	return Finding{Severity: Warning,
		Seen: fmt.Sprintf("%s drops what sandboxes behind %s send to other hosts, but their TCP connections and UDP "+
			"exchanges over IPv4 leave", v.Cause(), l.Name),
		Why: "the network has outbound ebpf: such packets bypass netfilter, and only the others obey the host's firewall",
		Fix: "if the firewall must decide, change the network to outbound nft: fairlead network create with all its " +
			"flags and --outbound nft"}
}

// leaving returns the verdict for the first packet of a connection from a
// sandbox behind l to a distant address. It returns false if the link has no
// address of the family, or the host does not forward it.
func (h Host) leaving(l, up inspect.InsideLink, to netip.AddrPort) (rules.Verdict, bool) {
	for _, p := range l.Addresses {
		if p.Addr().Is4() != to.Addr().Is4() ||
			h.Settings[map[bool]string{true: facts.Forward4, false: facts.Forward6}[p.Addr().Is4()]] == "0" {
			continue
		}
		from := netip.AddrPortFrom(p.Addr().Next(), 40000)
		return h.Rules.Filter("forward", rules.Packet{Proto: model.TCP, From: from, To: to, In: l.Name, Out: up.Name}),
			true
	}
	return rules.Verdict{}, false
}

// egressDropped reports that a firewall drops what sandboxes behind a link send.
func (h Host) egressDropped(l inspect.InsideLink, v rules.Verdict, v4 bool) Finding {
	table := map[bool]string{true: "ip filter", false: "ip6 filter"}[v4]
	f := Finding{Severity: Problem,
		Seen: fmt.Sprintf("%s drops what sandboxes behind %s send to other hosts", v.Cause(), l.Name),
		Why: "the sandboxes reach only this host, and their ports that are published via nat do not answer other hosts; " +
			"packets that the host forwards, and their answers, obey the host's firewall",
		Fix: fmt.Sprintf("in %s (%s), accept packets from %s and packets of its connections",
			escape.Shell(v.By.Chain), escape.Shell(v.By.Table), escape.Shell(l.Name))}
	if name, command := h.manager(l.Name, v, table); name != "" {
		f.Seen = name + ": " + f.Seen
		f.Fix = command
		return f
	}
	if command, ok := h.accept(v, outOf(l.Name)); ok {
		f.Fix = command
	}
	return f
}

// manager names the program that manages the firewall, ufw or firewalld, and the
// command that makes it forward what a link receives and sends. Both are empty if
// neither of them manages the firewall.
func (h Host) manager(link string, v rules.Verdict, table string) (name, command string) {
	link = escape.Shell(link)
	switch {
	case h.hasUFW(table):
		return "ufw", fmt.Sprintf("ufw route allow in on %[1]s && ufw route allow out on %[1]s", link)
	case v.By.Table == "inet firewalld":
		// A second network finds the zone and the policy, hence the semicolons.
		return "firewalld",
			fmt.Sprintf("firewall-cmd -q --permanent --new-zone=fairlead; firewall-cmd -q --permanent --new-policy=fairlead-out; "+
				"firewall-cmd -q --permanent --zone=fairlead --add-interface=%s; firewall-cmd -q --permanent --policy=fairlead-out --add-ingress-zone=fairlead; "+
				"firewall-cmd -q --permanent --policy=fairlead-out --add-egress-zone=ANY; firewall-cmd -q --permanent --policy=fairlead-out --set-target=ACCEPT; firewall-cmd -q --reload", link)
	}
	return "", ""
}

// Hint returns a sentence with a command if ufw or firewalld will drop what the
// sandboxes of a network send to other hosts; else it is empty. The network's
// bridge need not exist yet.
func Hint(h Host, n model.Network) string {
	up, ok := h.uplink()
	if !ok || !n.Traits().Bridge || n.Internal {
		return ""
	}
	link := driver.BridgeLink(n.Name)
	for _, s := range n.Subnets {
		v4 := s.Prefix.Addr().Is4()
		table := map[bool]string{true: "ip filter", false: "ip6 filter"}[v4]
		for _, to := range distant {
			if to.Addr().Is4() != v4 {
				continue
			}
			from := netip.AddrPortFrom(s.Prefix.Masked().Addr().Next().Next(), 40000)
			v := h.Rules.Filter("forward", rules.Packet{Proto: model.TCP, From: from, To: to, In: link, Out: up.Name})
			name, command := h.manager(link, v, table)
			if name != "" && v.Certain && (v.Action == rules.Drop || v.Action == rules.Reject) {
				return fmt.Sprintf("%s drops what the containers of network %s send to other hosts. To allow it, run: %s", name, n.Name, command)
			}
		}
	}
	return ""
}

// hasUFW reports whether ufw filters the host: whether its chain for the rules
// of `ufw route` is in the table, or in that table of legacy iptables.
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
