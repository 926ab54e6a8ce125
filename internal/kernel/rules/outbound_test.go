package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDecides follows the packets of a network through rules of other programs, and compares
// which chain decides about one of them.
func TestDecides(t *testing.T) {
	path := Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net", Ports: []string{"fv-web", "fv-db"},
		Uplinks: []string{"up0"}}
	const accept, deny = "*filter\n:FORWARD ACCEPT\n-A FORWARD ", "*filter\n:FORWARD DROP\n-A FORWARD "
	const pre, post = "*nat\n:PREROUTING ACCEPT\n-A PREROUTING ", "*nat\n:POSTROUTING ACCEPT\n-A POSTROUTING "
	const filter, nat, raw = "chain FORWARD (ip filter (legacy))", "nat", "raw"
	for _, c := range []struct {
		name, saved string
		chains      Ruleset
		want        string // a part of the cause; empty if no rule decides
	}{
		{name: "no rules"},
		{name: "a policy", saved: "*filter\n:FORWARD DROP\n", want: "the policy of chain FORWARD"},
		{name: "policies of other hooks", saved: "*filter\n:INPUT DROP\n:OUTPUT DROP\n"},
		{name: "all is accepted before the policy", saved: deny + "-i fl-net -j ACCEPT\n" +
			"-A FORWARD -o fl-net -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"},
		{name: "answers are not accepted", saved: deny + "-i fl-net -j ACCEPT\n", want: filter},
		{name: "errors are not accepted", want: filter, saved: deny + "-i fl-net -j ACCEPT\n" +
			"-A FORWARD -o fl-net -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"},
		{name: "a log", saved: accept + "-i fl-net -j LOG\n-A FORWARD\n"},
		{name: "an address outside", saved: accept + "-d 198.51.100.1/32 -j DROP\n", want: filter},
		{name: "a port outside", saved: accept + "-p tcp -m tcp --dport 25 -j REJECT\n",
			want: filter},
		{name: "an address of the network", saved: accept + "-s 172.30.0.7/32 -j DROP\n",
			want: filter},
		{name: "senders of another network", saved: accept + "-s 172.31.0.0/24 -i fl-net " +
			"-j DROP\n"},
		{name: "another link", saved: accept + "-i docker0 -j DROP\n-A FORWARD -o up1 -j DROP\n"},
		{name: "another protocol", saved: accept + "-p sctp -j DROP\n-A FORWARD -p icmp " +
			"-m icmp --icmp-type 8 -j DROP\n"},
		{name: "errors about the connections", want: filter,
			saved: accept + "-p icmp -m icmp --icmp-type 11 -j DROP\n"},
		{name: "resets", want: filter,
			saved: accept + "-i up0 -p tcp -m tcp --tcp-flags RST RST -j DROP\n"},
		{name: "a match that is not known", want: "may have the effect drop",
			saved: accept + "-i fl-net -m string --string x --algo bm -j DROP\n"},
		{name: "a target that is not known", want: filter,
			saved: accept + "-i fl-net -j TEE --gateway 192.0.2.1\n"},
		{name: "a smaller MSS", want: "may have the effect TCPMSS", saved: "*mangle\n:FORWARD ACCEPT\n" +
			"-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\n"},
		{name: "masquerade", saved: post + "-s 172.30.0.0/16 -j MASQUERADE\n", want: nat},
		{name: "another network's masquerade", saved: post + "-s 172.17.0.0/16 -j MASQUERADE\n"},
		{name: "a published port", want: nat,
			saved: pre + "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n"},
		{name: "a published port of the host", saved: pre + "-p tcp -m addrtype " +
			"--dst-type LOCAL -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80\n"},
		{name: "a drop before connection tracking", want: raw,
			saved: "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -s 172.30.0.0/24 -j DROP\n"},
		{name: "no connection tracking", want: "notrack",
			saved: "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -s 172.30.0.0/24 -j CT --notrack\n"},
		{name: "no connection tracking of answers", want: "notrack",
			saved: "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -i up0 -j CT --notrack\n"},
		{name: "a mark of answers", want: "sets the mark",
			saved: "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING -i up0 -j MARK --set-xmark 0x1/0xffffffff\n"},
		{name: "a mark that may choose a route", want: "sets the mark",
			saved: "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING -i fl-net -j MARK --set-xmark 0x1/0xffffffff\n"},
		{name: "a mark of another link", saved: "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING -i docker0 -j MARK " +
			"--set-xmark 0x1/0xffffffff\n*filter\n:FORWARD ACCEPT\n-A FORWARD -m mark --mark 0x1 -j DROP\n"},
		{name: "a mark that a later hook compares", want: filter, saved: "*mangle\n:FORWARD ACCEPT\n" +
			"-A FORWARD -j MARK --set-xmark 0x1/0xffffffff\n" + accept + "-m mark --mark 0x1 -j DROP\n"},
		{name: "a connection's mark that later packets have", want: filter, saved: "*mangle\n:POSTROUTING ACCEPT\n" +
			"-A POSTROUTING -j CONNMARK --set-xmark 0x1/0xffffffff\n*filter\n:FORWARD ACCEPT\n" +
			"-A FORWARD -m connmark --mark 0x1 -j DROP\n"},
		{name: "own rules", chains: Ruleset{{
			Table: "inet own-x", Name: "c", Hook: "forward", Type: "filter", Policy: Drop}}},
		{name: "a frame's port at a bridge",
			chains: drops("bridge t", "prerouting", InLink, "fv-db"), want: "bridge t"},
		{name: "a frame's port to the host", chains: drops("bridge t", "input", InLink, "fv-db"), want: "bridge t"},
		{name: "a frame of another port", chains: drops("bridge t", "prerouting", InLink, "veth1")},
		{name: "a frame between ports", chains: drops("bridge t", "forward", InLink, "fv-db")},
		{name: "an answer's frame", chains: drops("bridge t", "output", OutLink, "fv-web"), want: "bridge t"},
		{name: "an answer's frame, routed",
			chains: drops("bridge t", "postrouting", OutLink, "fv-web"), want: "bridge t"},
		{name: "ingress of a sandbox's link", chains: drops("netdev t", "ingress", InLink, "fv-web", "fv-web"),
			want: "netdev t"},
		{name: "ingress of the bridge",
			chains: drops("netdev t", "ingress", InLink, "fl-net", "fl-net"), want: "netdev t"},
		{name: "ingress of the uplink", chains: drops("inet t", "ingress", InLink, "up0", "up0"), want: "inet t"},
		{name: "ingress of another link", chains: drops("netdev t", "ingress", EtherType, "", "up1")},
		{name: "egress to a sandbox", chains: drops("netdev t", "egress", OutLink, "fv-db", "fv-db"), want: "netdev t"},
		{name: "egress of the uplink", chains: drops("netdev t", "egress", OutLink, "up0", "up0"), want: "netdev t"},
	} {
		rs := append(Saved("ip", c.saved), c.chains...)
		slices.SortStableFunc(rs, func(a, b Chain) int { return a.Priority - b.Priority })
		got := rs.Decides(path, "own").Text
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: the cause is %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDecidesUntil: elements of a set that expire matter if the rule may match packets of the
// network, whether or not it matches with the elements.
func TestDecidesUntil(t *testing.T) {
	path := Path{Senders: netip.MustParsePrefix("172.30.0.0/24"), Router: "fl-net", Uplinks: []string{"up0"}}
	at, sender := time.Unix(1000, 0), []byte{172, 30, 0, 7}
	element := func(not bool) Condition {
		return Condition{Fields: []Field{Source}, Not: not, In: [][]Range{{{sender, sender}}}, Set: true}
	}
	from := func(link string) Condition {
		return Condition{Fields: []Field{InLink}, In: [][]Range{{linkRange(link)}}}
	}
	for _, c := range []struct {
		name  string
		rules []Rule
		want  time.Time
	}{
		{"no elements that expire", []Rule{{Conditions: []Condition{element(false)}, Action: Drop}}, time.Time{}},
		{"senders that are dropped", []Rule{{Conditions: []Condition{element(false)}, Action: Drop, Until: at}}, at},
		{"other senders are dropped", []Rule{{Conditions: []Condition{element(true)}, Action: Drop, Until: at}}, at},
		{"the first of two", []Rule{{Conditions: []Condition{element(true)}, Action: Accept, Until: at.Add(time.Hour)},
			{Conditions: []Condition{from("fl-net"), element(true)}, Action: Accept, Until: at}}, at},
		{"another link", []Rule{{Conditions: []Condition{from("docker0"), element(true)}, Action: Drop, Until: at}},
			time.Time{}},
		{"all is accepted before", []Rule{{Action: Accept}, {Action: Drop, Until: at}}, time.Time{}},
	} {
		rs := Ruleset{{Table: "inet t", Name: "c", Hook: "forward", Type: "filter", Policy: Accept, Rules: c.rules}}
		if got := rs.Decides(path, "own"); !got.Until.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// drops returns a chain that drops IPv4 packets with this link in the field, or all of them if
// the field is EtherType.
func drops(table, hook string, f Field, value string, links ...string) Ruleset {
	in := linkRange(value)
	if f == EtherType {
		kind := big.AppendUint16(nil, unix.ETH_P_IP)
		in = Range{kind, kind}
	}
	return Ruleset{{Table: table, Name: "c", Hook: hook, Type: "filter", Links: links, Policy: Accept, Rules: []Rule{
		{Conditions: []Condition{{Fields: []Field{f}, In: [][]Range{{in}}}}, Action: Drop}}}}
}
