package truth

import (
	"fmt"
	"strings"
)

// conditions are matches of nftables that `fairlead explain` follows, by the families that
// have them; oddConditions are the others that this kernel has.
var conditions = map[string][]string{
	"any": {"tcp dport <port>", "tcp dport <port>", "udp dport <port>", "tcp dport { <port>, 443 }",
		"tcp dport <range>", "udp dport != <range>", "tcp dport != <port>", "meta l4proto tcp",
		"meta l4proto { tcp, udp }", "meta l4proto != udp", "tcp sport 1024-65535", "tcp sport <port>",
		"th dport <port>", "meta mark <mark>", "meta mark & 0x3 == 0x1", "meta mark != 0", "meta mark <n>-9",
		"tcp flags syn", "tcp flags & (fin|syn|rst|ack) == syn", "tcp flags != syn", "tcp flags syn / syn,ack",
		"tcp sport 1024-65535 tcp dport <port>", "meta protocol ip",
		"meta l4proto vmap { icmp : accept, igmp : drop }"},
	"ip": {"ip saddr <v4>", "ip saddr <v4>", "ip saddr != <v4>", "ip daddr <v4>", "ip saddr <net4>",
		"ip daddr != <net4>", "ip saddr { <v4>, 192.0.2.1 }", "ip daddr { <net4>, 192.0.2.0/24 }",
		"ip saddr <v4> ip daddr <v4>", "ip saddr <v4> ip daddr <v4> tcp dport <port>", "ip protocol tcp",
		"ip protocol udp ip saddr <v4>", "ip saddr & 0.0.0.3 == 0.0.0.2", "ip saddr 10.77.0.2-10.77.0.9",
		"ip saddr . tcp dport { <v4> . <port>, <v4> . 443 }", "ip saddr . ip daddr { <v4> . <v4>, <v4> . <v4> }",
		"ip daddr . meta l4proto . th dport { <v4> . tcp . <port>, <v4> . udp . 53 }"},
	"ip6": {"ip6 saddr <v6>", "ip6 daddr <v6>", "ip6 saddr != <v6>", "ip6 saddr <net6>", "ip6 daddr { <v6>, fd99::1 }",
		"ip6 saddr . tcp dport { <v6> . <port> }", "ip6 nexthdr tcp", "ip6 saddr <v6> ip6 daddr <v6>"},
	"hooks": {"ct state new", "ct state established,related", "ct state { new, untracked }", "ct state invalid",
		"ct status dnat", "ct state new ct status dnat", "ct mark <mark>", "fib daddr type local",
		"fib daddr type != local", "fib daddr type { local, broadcast }",
		"ct state vmap { established : accept, invalid : drop }",
		"ct state untracked", "ct state != new"},
	"in": {"iifname <link>", "iifname != <link>", "iif <link>", "iifname { <link>, <link> }", "iifname \"v*\"",
		"iifname . meta l4proto { <link> . tcp, <link> . udp }"},
	"out": {"oifname <link>", "oifname != <link>", "oif <link>", "oifname \"e*\""},
}

var oddConditions = map[string][]string{
	"any": {"meta length > 10", "limit rate 1/second", "limit rate over 1/minute burst 1 packets",
		"numgen random mod 2 == 0", "numgen inc mod 2 == 0", "meta cpu 0", "meta pkttype host", "quota until 10 mbytes",
		"quota over 10 mbytes", "meta priority 0", "tcp window > 0", "tcp option maxseg size > 0", "tcp sequence > 0",
		"udp length > 1", "@th,16,16 80", "@nh,96,32 0x0a4d0002", "meta random 0-2147483647",
		"tcp option sack-perm exists",
		"tcp doff > 4", "udp checksum != 0", "meta time > \"2020-01-01\"", "meta hour \"00:00\"-\"12:00\""},
	"ip": {"ip ttl < 64", "ip ttl 64", "ip ttl 63", "ip length < 100", "ip dscp cs0", "ip dscp cs1", "ip id 0",
		"ip frag-off 0",
		"ip version 4", "ip hdrlength 5", "ip ecn not-ect", "jhash ip saddr mod 2 == 0", "ip ttl 64 ip protocol tcp",
		"ip ttl 63 ip saddr <v4>", "ip option rr exists", "ip saddr . ip ttl { <v4> . 64 }", "ip checksum != 0",
		"ip ttl != 64 tcp dport <port>", "ip length > 10 ip daddr <v4>"},
	"ip6": {"ip6 hoplimit 64", "ip6 hoplimit < 64", "ip6 length > 1", "ip6 flowlabel 0", "exthdr frag exists",
		"ip6 version 6", "ip6 hoplimit 63 ip6 saddr <v6>", "ip6 dscp cs0"},
	"hooks": {"ct direction original", "ct direction reply", "ct original ip daddr <v4>",
		"ct original proto-dst <port>",
		"ct reply ip saddr <v4>", "ct zone 0", "ct bytes < 100000", "ct packets < 100", "ct expiration > 1s",
		"ct original ip saddr <v4> tcp dport <port>", "ct id != 0", "ct count over 100", "ct l3proto ipv4",
		"ct status confirmed", "ct status seen-reply", "ct status assured", "ct status snat", "ct avgpkt > 1000",
		"fib saddr . iif oif missing", "fib daddr . iif type local", "fib saddr type local", "fib saddr type unicast",
		"meta skuid 0", "meta skgid != 5", "socket transparent 1", "socket wildcard 0", "osf name Linux",
		"rt nexthop 10.77.0.2", "rtclassid 0", "ct label 5", "ct helper \"ftp\"", "meta ipsec exists"},
	"in":  {"meta iifkind veth", "meta iifgroup 0", "meta iiftype ether", "iif >= 2", "meta iifgroup 0-3"},
	"out": {"meta oifgroup 0", "meta oifkind veth", "meta oiftype ether"},
}

// statements are what documented rules do; oddStatements are the others.
var (
	statements = []string{"accept", "accept", "drop", "drop", "drop", "reject", "return", "jump u", "goto u", "counter",
		"counter drop", "meta mark set <mark>", "meta mark set <mark> accept", "ct mark set <mark>",
		"meta mark set ct mark", "meta mark set meta mark | <mark>", "log drop", "reject with tcp reset",
		"tcp dport vmap { <port> : drop, 443 : accept }", "ip saddr vmap { <v4> : accept, <v4> : drop }",
		"meta l4proto vmap { tcp : jump u, udp : accept }", "meta mark set ip saddr map { <v4> : <mark> }",
		"ip saddr vmap { <net4> : jump u, 192.0.2.0/24 : drop }"}
	oddStatements = []string{"ip ttl set 5", "ip ttl set 1", "ip dscp set cs1", "tcp dport set 81", "ip daddr set <v4>",
		"ct zone set 5", "meta priority set 1:1", "meta mark set numgen random mod 4",
		"meta mark set jhash ip saddr mod 4", "limit rate 1/second accept", "limit rate over 100/second drop",
		"ip saddr vmap { <v4> : accept, * : drop }", "queue flags bypass", "meta pkttype set other",
		"meta nftrace set 1",
		"ct event set new", "dup to 192.0.2.9", "meta mark set meta length", "last drop", "quota over 1 mbytes drop",
		"numgen random mod 2 vmap { 0 : accept, 1 : drop }", "numgen inc mod 2 vmap { 0 : drop, 1 : drop }",
		"tcp dport set <port>", "th dport set 80", "ct label set 5", "tcp option maxseg size set 1000",
		"ip saddr set <v4>", "synproxy mss 1460 wscale 7"}
)

// condition returns a condition for a family at a hook.
func (g *generator) condition(family, hook string) string {
	kinds := []string{"any"}
	if family != "ip6" {
		kinds = append(kinds, "ip", "ip")
	}
	if family != "ip" {
		kinds = append(kinds, "ip6")
	}
	if family == "inet" || family == "ip" || family == "ip6" {
		kinds = append(kinds, "hooks")
	}
	if hook == "prerouting" || hook == "input" || hook == "forward" {
		kinds = append(kinds, "in")
	}
	if hook == "output" || hook == "postrouting" || hook == "forward" {
		kinds = append(kinds, "out")
	}
	from := conditions
	if !g.documented && g.IntN(3) == 0 {
		from = oddConditions
	}
	return one(g, from[one(g, kinds)])
}

// rule returns conditions and a statement. A chain that is only jumped to has no jumps.
func (g *generator) rule(family, hook string, jumps bool) string {
	var words []string
	for range 1 + g.IntN(2) {
		words = append(words, g.condition(family, hook))
	}
	statement := one(g, statements)
	if !g.documented && g.IntN(5) == 0 {
		statement = one(g, oddStatements)
	}
	for !jumps && strings.Contains(statement, " u") {
		statement = one(g, statements)
	}
	return strings.Join(append(words, statement), " ")
}

// table adds a table with a base chain, the chain u, and rules in both.
func (g *generator) table(prefix, family, hook, kind string, policies ...string) {
	g.tables++
	name := fmt.Sprintf("%s t%d", family, g.tables)
	policy := ""
	if len(policies) > 0 {
		policy = " policy " + one(g, policies) + ";"
	}
	g.add(prefix+"nft add table "+name, prefix+"nft add chain "+name+" u",
		fmt.Sprintf("%snft 'add chain %s c { %s;%s }'", prefix, name, kind, policy))
	for range g.IntN(3) {
		g.add(fmt.Sprintf("%snft 'add rule %s u %s'", prefix, name, g.rule(family, hook, false)))
	}
	for range 1 + g.IntN(4) {
		g.add(fmt.Sprintf("%snft 'add rule %s c %s'", prefix, name, g.rule(family, hook, true)))
	}
	if strings.Contains(policy, "drop") && g.IntN(3) > 0 {
		if strings.HasPrefix(hook, "p") || hook == "input" || hook == "output" || hook == "forward" {
			g.add(prefix+"nft insert rule "+name+" c ct state established accept",
				prefix+"nft insert rule "+name+" c meta l4proto ipv6-icmp accept")
		}
		g.add(fmt.Sprintf("%snft 'add rule %s c %s'", prefix, name, "tcp dport <port> accept"))
	}
}

var hooks = []string{"prerouting", "input", "input", "forward", "forward", "output", "postrouting"}

// filter adds filter rules of nftables.
func (g *generator) filter() {
	family, hook := one(g, []string{"inet", "inet", "ip", "ip6"}), one(g, hooks)
	priority := one(g, []string{"0", "-150", "10", "-300", "100"})
	g.table(g.in(), family, hook, fmt.Sprintf("type filter hook %s priority %s", hook, priority), "accept", "accept",
		"drop")
}

// marks adds rules that set a mark, and others that decide by it.
func (g *generator) marks() {
	prefix := g.in()
	g.add(prefix+"nft add table inet m",
		prefix+"nft 'add chain inet m p { type filter hook prerouting priority -150; }'",
		prefix+"nft 'add chain inet m o { type route hook output priority -150; }'",
		prefix+"nft 'add chain inet m i { type filter hook input priority 0; }'",
		prefix+"nft 'add chain inet m f { type filter hook forward priority 0; }'",
		prefix+"nft 'add rule inet m p "+g.condition("ip", "prerouting")+" meta mark set <mark>'",
		prefix+"nft 'add rule inet m p meta mark <mark> ct mark set meta mark'",
		prefix+"nft 'add rule inet m o "+g.condition("ip", "output")+" meta mark set <mark>'",
		prefix+"nft add rule inet m i meta mark "+one(g, []string{"<mark> drop", "!= 0 drop", "'&' 1 == 1 accept"}),
		prefix+"nft add rule inet m f "+one(g, []string{"ct mark <mark> drop", "meta mark <mark> drop"}))
	if g.IntN(2) == 0 {
		g.add("ip rule add fwmark <mark> table 100", "ip route add "+one(g, []string{"blackhole default",
			"unreachable default", "<v4> dev vc", "default via 10.77.0.2"})+" table 100")
	}
}

// nat adds translations of nftables.
func (g *generator) nat() {
	g.ports = append(g.ports, "8080")
	prefix := ""
	if g.IntN(5) == 0 {
		prefix = one(g, []string{"a ", "c "})
	}
	proto := one(g, []string{"tcp", "tcp", "udp", "th"})
	if proto == "th" {
		proto = "meta l4proto { tcp, udp } th"
	}
	targets := []string{"dnat ip to <box4>:80", "dnat ip to <box4>:80", "dnat ip to <box4>", "redirect to :80",
		"dnat ip6 to [<box6>]:80", "dnat ip to " + proto + " dport map { 8080 : <box4> . 80 }",
		"dnat ip to <box4>:8080-8090", "dnat ip to 10.77.0.2-10.77.0.3:80",
		"dnat ip to numgen inc mod 2 map { 0 : 10.77.0.2, 1 : 10.77.0.3 }", "dnat ip to 10.77.0.99:80",
		"redirect to :80-90"}
	for _, hook := range []string{"prerouting", "prerouting", "output"} {
		condition := "" + proto + " dport 8080"
		if g.IntN(3) == 0 {
			condition = one(g, []string{"ip daddr <v4> ", "iifname <link> ", "ip saddr <net4> ",
				"fib daddr type local "}) +
				condition
		}
		g.add(prefix+"nft add table inet n",
			fmt.Sprintf("%snft 'add chain inet n %s { type nat hook %s priority -100; }'",
				prefix, hook, hook),
			fmt.Sprintf("%snft 'add rule inet n %s %s %s'", prefix, hook, condition, one(g, targets)))
		if g.IntN(2) == 0 {
			break
		}
	}
	if g.IntN(2) == 0 {
		g.add(prefix+"nft 'add chain inet n post { type nat hook postrouting priority 100; }'",
			prefix+"nft 'add rule inet n post "+one(g, []string{"oifname <link> ", "ip saddr <net4> ",
				"ct status dnat ",
				"ip daddr <box4> ", ""})+one(g, []string{"masquerade", "masquerade", "snat ip to <v4>"})+"'")
	}
}

// untracked adds rules that turn connection tracking off.
func (g *generator) untracked() {
	hook := one(g, []string{"prerouting", "output"})
	prefix := g.in()
	g.add(prefix+"nft add table inet r", prefix+"nft 'add chain inet r c { type filter hook "+hook+" priority -300; }'",
		prefix+"nft 'add rule inet r c "+g.condition("ip", hook)+" notrack'",
		prefix+"nft 'add chain inet r i { type filter hook "+one(g, hooks)+" priority 0; }'",
		prefix+"nft 'add rule inet r i "+one(g, []string{"ct state untracked drop", "ct state invalid drop",
			"ct state new,established accept", "ct state new drop", "tcp dport <port> ct state untracked accept"})+"'")
}

// zones adds rules that choose a zone of connection tracking.
func (g *generator) zones() {
	g.add("nft add table inet z", "nft 'add chain inet z c { type filter hook prerouting priority -300; }'",
		"nft 'add rule inet z c "+one(g, []string{"iifname <link>", "ip saddr <v4>"})+" ct zone set <n>'",
		"nft 'add chain inet z i { type filter hook input priority 0; }'",
		"nft 'add rule inet z i ct state "+one(g, []string{"invalid", "new", "established"})+" drop'")
}

// dynamicSets adds a set that rules fill, and rules that look into it.
func (g *generator) dynamicSets() {
	g.add("nft add table inet d", "nft 'add set inet d s { type ipv4_addr; flags dynamic; size 100; }'",
		"nft 'add chain inet d c { type filter hook prerouting priority -150; }'",
		"nft 'add rule inet d c "+g.condition("ip", "prerouting")+" "+one(g, []string{"add", "update"})+
			" @s { ip saddr }'",
		"nft 'add chain inet d i { type filter hook "+one(g, []string{"input", "forward"})+" priority 0; }'",
		"nft 'add rule inet d i ip saddr "+one(g, []string{"@s", "!= @s"})+" "+one(g, []string{"drop", "accept"})+"'")
}
