package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
)

// foreign creates rules like those of Docker and of a firewall.
const foreign = `
ip link set lo up
ip link add docker0 type bridge
%[1]s -t nat -N DOCKER
%[1]s -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
%[1]s -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
%[1]s -t nat -A DOCKER -i docker0 -j RETURN
%[1]s -t nat -A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
%[1]s -t nat -A DOCKER -d 192.0.2.10/32 ! -i docker0 -p udp -m udp --dport 53 -j DNAT --to-destination 172.17.0.3:5353
%[1]s -t nat -A PREROUTING -p tcp -m multiport --dports 90,91:95 -j DNAT --to-destination 10.0.0.9
%[1]s -t nat -A PREROUTING -p tcp -m tcp --dport 99 -j REDIRECT --to-ports 98
%[1]s -P INPUT DROP
%[1]s -A INPUT -i lo -j ACCEPT
%[1]s -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
%[1]s -A INPUT -s 192.0.2.0/24 -p tcp -m tcp --dport 22 -j ACCEPT
%[1]s -A INPUT -p tcp -m tcp --dport 443 -m hashlimit --hashlimit-upto 1/s --hashlimit-name x -j ACCEPT
`

// TestRulesOfIptables reads the same rules from both variants of iptables, and
// evaluates them for packets.
func TestRulesOfIptables(t *testing.T) {
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(program, func(t *testing.T) {
			h := openTestHost(t)
			h.run(t, "sh", "-ec", fmt.Sprintf(foreign, program))
			rs, unread, err := h.nft.Ruleset()
			if err != nil || len(unread) > 0 {
				t.Fatal(unread, err)
			}
			want := []string{
				`fib daddr type local jump DOCKER`,
				`l4proto tcp th dport { 90, 91-95 } dnat to 10.0.0.9`,
				`l4proto tcp th dport 99 redirect to :98`,
				`fib daddr type local ip daddr != 127.0.0.0/8 jump DOCKER`,
				`iifname "docker0" return`,
				`iifname != "docker0" l4proto tcp th dport 8080 dnat to 172.17.0.2:80`,
				`iifname != "docker0" ip daddr 192.0.2.10 l4proto udp th dport 53 dnat to 172.17.0.3:5353`,
				`iifname "lo" accept`,
				`ct state established,related accept`,
				`ip saddr 192.0.2.0/24 l4proto tcp th dport 22 accept`,
				`l4proto tcp th dport 443 … accept`,
			}
			if diff := cmp.Diff(sorted(want), sorted(texts(rs))); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			follow(t, rs)
		})
	}
}

// follow checks the verdicts of the rules for some packets.
func follow(t *testing.T, rs rules.Ruleset) {
	t.Helper()
	packet := func(from, to, in string) rules.Packet {
		return rules.Packet{Proto: model.TCP, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to),
			In: in, Local: true}
	}
	for _, c := range []struct {
		packet  rules.Packet
		filter  bool
		action  rules.Action
		certain bool
	}{
		{packet("192.0.2.1:0", "192.0.2.10:22", "eth0"), true, rules.Accept, true},
		{packet("198.51.100.1:0", "192.0.2.10:22", "eth0"), true, rules.Drop, true},
		{packet("198.51.100.1:0", "192.0.2.10:443", "eth0"), true, rules.Drop, false},
		{packet("127.0.0.1:0", "127.0.0.1:443", "lo"), true, rules.Accept, true},
		{packet("192.0.2.1:0", "192.0.2.10:8080", "eth0"), false, rules.DNAT, true},
		{packet("172.17.0.2:0", "192.0.2.10:8080", "docker0"), false, rules.Accept, true},
		{packet("192.0.2.1:0", "192.0.2.10:53", "eth0"), false, rules.Accept, true},
		{packet("192.0.2.1:0", "192.0.2.10:94", "eth0"), false, rules.DNAT, true},
		{packet("192.0.2.1:0", "192.0.2.10:99", "eth0"), false, rules.Redirect, true},
	} {
		v := rs.Translate("prerouting", c.packet)
		if c.filter {
			v = rs.Filter("input", c.packet)
		}
		if v.Action != c.action || v.Certain != c.certain {
			t.Errorf("%+v: %s, certain %v; want %s, %v (by %s)", c.packet, v.Action, v.Certain, c.action, c.certain,
				v.By.Rule)
		}
	}
}

// TestRulesOfNftables reads sets, maps, concatenations and maps of verdicts.
func TestRulesOfNftables(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "sh", "-ec", `ip link add br0 group 7 type bridge
ip link add br1 group 7 type bridge
nft -f - <<'EOF'
table inet mine {
	map translated { type ipv4_addr . inet_service : ipv4_addr . inet_service; elements = { 192.0.2.1 . 80 : 10.0.0.2 . 8080 } }
	set open { type inet_service; flags interval; elements = { 22, 8000-8010 } }
	chain pre {
		type nat hook prerouting priority dstnat;
		dnat ip to ip daddr . tcp dport map @translated
		dnat ip to tcp dport map { 81 : 10.0.0.3, 82 : 10.0.0.4 }
		ip6 daddr 2001:db8::/64 udp dport 53 dnat ip6 to [fd00::2]:5353
		iifname "eth*" tcp dport 83-84 redirect to :8300
	}
	chain in {
		type filter hook input priority filter; policy accept;
		tcp dport @open accept
		tcp dport vmap { 25 : drop, 26 : jump more }
		iif "lo" accept
	}
	chain more { iifgroup 7 oifgroup != 7 drop; iifgroup & 7 == 7 drop; limit rate 1/second accept; reject; }
}
EOF`)
	rs, _, err := h.nft.Ruleset()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`ip daddr . th dport 192.0.2.1 . 80 l4proto tcp nfproto ipv4 dnat to 10.0.0.2:8080`,
		`l4proto tcp nfproto ipv4 th dport 81 dnat to 10.0.0.3`,
		`l4proto tcp nfproto ipv4 th dport 82 dnat to 10.0.0.4`,
		`ip6 daddr 2001:db8::/64 l4proto udp nfproto ipv6 th dport 53 dnat to [fd00::2]:5353`,
		`iifname "eth*" l4proto tcp th dport 83-84 redirect to :8300`,
		`l4proto tcp th dport { 22, 8000-8010 } accept`,
		`l4proto tcp th dport 25 drop`,
		`l4proto tcp th dport 26 jump more`,
		`iifname "lo" accept`,
		`iifname { "br0", "br1" } oifname != { "", "br0", "br1" } drop`,
		`… drop`,
		`… accept`,
		`reject`,
	}
	if diff := cmp.Diff(sorted(want), sorted(texts(rs))); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestRulesOfTableMatchLinks evaluates the rules of Fairlead's table for packets from
// and to links of each group.
func TestRulesOfTableMatchLinks(t *testing.T) {
	h := openTestHost(t)
	for _, o := range (plan.Plan{
		plan.Link{Name: "fl-open", Kind: plan.Bridge, MTU: 1500, Owner: "open", Group: plan.SandboxLinks},
		plan.Link{Name: "fl-shut", Kind: plan.Bridge, MTU: 1500, Owner: "shut", Group: plan.InternalLinks},
	}) {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.nft.Transact(plan.Diff(nil, plan.Plan{plan.Table{},
		plan.Proxied{Host: netip.IPv4Unspecified(), Proto: model.TCP, Ports: model.Port(8080)}})); err != nil {
		t.Fatal(err)
	}
	rs, unread, err := h.nft.Ruleset()
	if err != nil || len(unread) > 0 {
		t.Fatal(unread, err)
	}
	for _, c := range []struct {
		hook, in, out, to string
		want              rules.Action
	}{
		{"input", "eth0", "", "192.0.2.1:8080", rules.Accept},
		{"input", "fl-open", "", "192.0.2.1:8080", rules.Accept},
		{"input", "fl-shut", "", "192.0.2.1:8080", rules.Drop},
		{"input", "fl-shut", "", "192.0.2.1:8081", rules.Accept},
		{"input", "eth0", "", "127.0.0.1:80", rules.Accept},
		{"input", "fl-open", "", "127.0.0.1:80", rules.Drop},
		{"input", "fl-shut", "", "127.0.0.1:80", rules.Drop},
		{"forward", "fl-open", "eth0", "192.0.2.9:80", rules.Accept},
		{"forward", "fl-shut", "eth0", "192.0.2.9:80", rules.Drop},
		{"forward", "eth0", "fl-open", "10.0.0.2:80", rules.Accept},
		{"forward", "eth0", "fl-shut", "10.0.0.2:80", rules.Drop},
		{"prerouting", "eth0", "", "192.0.2.1:8080", rules.Accept},
	} {
		v := rs.Filter(c.hook, rules.Packet{Proto: model.TCP, From: netip.MustParseAddrPort("198.51.100.7:40000"),
			To: netip.MustParseAddrPort(c.to), In: c.in, Out: c.out, Local: c.hook != "forward"})
		if v.Action != c.want || !v.Certain {
			t.Errorf("%+v: %s, certain %v (by %s)", c, v.Action, v.Certain, v.By.Rule)
		}
	}
}

// TestJoinedLoads reads conditions on fields that follow each other, which nft loads
// together: each field decides, and only the one that is not supported is unknown.
func TestJoinedLoads(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "sh", "-ec", `nft -f - <<'EOF'
table inet mine {
	chain in {
		type filter hook input priority filter; policy accept;
		icmp type destination-unreachable icmp code frag-needed drop
		icmpv6 type packet-too-big icmpv6 code 0 drop
		ip saddr 192.0.2.1 ip daddr 192.0.2.2 tcp sport 40000 tcp dport 80 drop
		ip ttl 3 ip protocol tcp ip saddr 192.0.2.9 drop
	}
}
EOF`)
	rs, _, err := h.nft.Ruleset()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proto    model.Proto
		from, to string
		tooBig   bool
		action   rules.Action
		certain  bool
	}{
		{model.TCP, "192.0.2.1:443", "192.0.2.2:40000", true, rules.Drop, true},
		{model.TCP, "[2001:db8::1]:443", "[2001:db8::2]:40000", true, rules.Drop, true},
		{model.TCP, "192.0.2.1:40000", "192.0.2.2:80", false, rules.Drop, true},
		{model.TCP, "192.0.2.1:40000", "192.0.2.3:80", false, rules.Accept, true},
		{model.TCP, "192.0.2.1:40001", "192.0.2.2:80", false, rules.Accept, true},
		{model.TCP, "192.0.2.9:40000", "192.0.2.2:80", false, rules.Accept, false},
		{model.UDP, "192.0.2.9:40000", "192.0.2.2:80", false, rules.Accept, true},
		{model.TCP, "[2001:db8::1]:40000", "[2001:db8::2]:80", false, rules.Accept, true},
	} {
		v := rs.Filter("input", rules.Packet{Proto: c.proto, From: netip.MustParseAddrPort(c.from),
			To: netip.MustParseAddrPort(c.to), In: "eth0", Local: true, TooBig: c.tooBig})
		if v.Action != c.action || v.Certain != c.certain {
			t.Errorf("%+v: %s, certain %v; want %s, %v (by %s)", c, v.Action, v.Certain, c.action, c.certain, v.By.Rule)
		}
		if !c.certain && (len(v.Doubts) != 1 || !slices.Equal(v.Doubts[0].Rule.Unread, []string{"ip ttl"})) {
			t.Errorf("%+v: the doubts are %+v, want ip ttl", c, v.Doubts)
		}
	}
}

func texts(rs rules.Ruleset) []string {
	var all []string
	for _, c := range rs {
		for _, r := range c.Rules {
			slices.SortFunc(r.Conditions, func(a,
				b rules.Condition) int {
				return strings.Compare(a.String(), b.String())
			})
			all = append(all, strings.TrimSpace(r.String()))
		}
	}
	return all
}

func sorted(s []string) []string { slices.Sort(s); return s }
