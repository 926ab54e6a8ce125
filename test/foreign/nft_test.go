package foreign

import (
	"fmt"
	"strings"
)

// tables are tables of other programs: those of iptables-nft, of tools, and some that
// have the names of Fairlead's in another family.
var tables = map[string][]string{
	"inet":   {"mine", "firewalld", "filter", "filter"},
	"ip":     {"filter", "filter", "nat", "mangle", "raw", "mine", "fairlead", "fairlead-services"},
	"ip6":    {"filter", "filter", "nat", "mangle", "mine", "fairlead"},
	"arp":    {"filter", "mine"},
	"bridge": {"filter", "mine", "fairlead"},
	"netdev": {"mine", "fairlead"},
}

var familyNames = []string{"inet", "inet", "ip", "ip", "ip", "ip6", "ip6", "arp", "bridge", "netdev"}

// baseChains are the hooks of each family.
var baseChains = map[string][]string{
	"inet": {"filter hook prerouting", "filter hook input", "filter hook forward", "filter hook output",
		"filter hook postrouting", "nat hook prerouting", "nat hook output", "nat hook postrouting", "nat hook input",
		"route hook output", "filter hook ingress device wire0", "filter hook egress device wire0"},
	"arp": {"filter hook input", "filter hook output"},
	"bridge": {"filter hook prerouting", "filter hook input", "filter hook forward", "filter hook output",
		"filter hook postrouting"},
	"netdev": {"filter hook ingress device wire0", "filter hook egress device wire0",
		"filter hook ingress devices = { lo, wire0 }"},
}

// chains are names of chains: any, and those that Docker and Fairlead know.
var chains = []string{"FORWARD", "INPUT", "OUTPUT", "DOCKER-USER", "DOCKER", "c1", "c2", "forward", "FAIRLEAD-X"}

// objects are made in a table before its rules.
var objects = []string{
	"add set %s s1 { type inet_service; flags interval; auto-merge; elements = { 22, 80-90 }; }",
	"add set %s s2 { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 100; }",
	"add set %s s3 { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/24 . 1-5 }; }",
	"add set %s s4 { typeof ct original ip daddr; elements = { 192.0.2.1 comment \"x\" }; }",
	"add set %s s5 { type ifname; elements = { \"eth*\", \"lo\" }; }",
	"add set %s s6 { type ether_addr; elements = { 02:00:00:00:00:01 counter packets 1 bytes 2 }; }",
	"add set %s s7 { type mark; elements = { 1, 2 }; comment \"a comment\"; }",
	"add set %s s8 { type inet_proto; counter; elements = { tcp, udp, sctp }; }",
	"add map %s m1 { type inet_service : verdict; elements = { 1 : accept, 2 : drop, 3 : return }; }",
	"add map %s m2 { type ipv4_addr : mark; flags interval; elements = { 192.0.2.0/25 : 1 }; }",
	"add map %s m3 { type inet_service : ipv4_addr . inet_service; elements = { 81 : 192.0.2.7 . 8080 }; }",
	"add map %s m4 { typeof ip saddr . meta mark : verdict; elements = { 192.0.2.1 . 0x1 : continue }; }",
	"add map %s m5 { type ipv4_addr : counter; }",
	"add counter %s o1 { comment \"x\"; }", "add quota %s o2 { over 10 mbytes; }",
	"add limit %s o3 { rate 10/second; }",
	"add ct helper %s o4 { type \"ftp\" protocol tcp; }", "add synproxy %s o5 { mss 1460; wscale 7; timestamp; }",
	"add ct timeout %s o6 { protocol tcp; policy = { established: 100, close: 5 }; }",
	"add ct expectation %s o7 { protocol tcp; dport 99; timeout 1m; size 5; }",
	"add secmark %s o8 { \"system_u:object_r:x_t:s0\"; }",
	"add flowtable %s f1 { hook ingress priority 0; devices = { wire0 }; }",
}

// conditions are matches. The kernel refuses some of them in some families and hooks.
var conditions = []string{
	"meta length > %d", "meta protocol ip", "meta mark 0x%d", "meta mark & 0xff == 0x%d", "iif lo", "iifname wire0",
	"oifname \"w*\"",
	"meta iiftype ether", "meta skuid %d", "meta skgid < %d", "rtclassid %d", "meta pkttype multicast", "meta cpu 0",
	"iifgroup %d",
	"oifgroup != %d", "meta cgroup %d", "meta ipsec exists", "meta iifkind veth", "meta day Monday",
	"meta hour \"17:00\"-\"18:00\"",
	"meta time > \"2020-01-01\"", "meta sdifname wire0", "meta l4proto { tcp, udp }", "meta nfproto ipv4",
	"meta priority 1:%d",
	"meta ibrname br0", "meta obrname br0", "meta broute 1", "socket transparent 1", "socket mark %d",
	"socket wildcard 0",
	"fib daddr type local", "fib saddr . iif oif missing", "fib saddr . mark oif exists",
	"fib daddr . iif type != unicast",
	"rt classid %d", "rt ip nexthop 192.0.2.%d", "rt mtu > %d", "rt ip6 nexthop fd00::1", "rt ipsec missing",
	"ipsec in reqid %d",
	"osf name Linux", "osf ttl skip version \"Linux:4\"", "numgen inc mod %d 0", "numgen random mod 10 < 5",
	"jhash ip saddr mod %d 0", "symhash mod 2 0", "ct state new,related",
	"ct state vmap { new : continue, invalid : drop }",
	"ct direction reply", "ct status dnat", "ct status ! snat", "ct mark %d", "ct mark and 0xf0 == 0x10",
	"ct helper \"ftp\"",
	"ct expiration < 30s", "ct original l3proto ipv4", "ct original ip daddr 192.0.2.%d",
	"ct reply ip saddr 192.0.2.0/24",
	"ct original ip6 daddr fd00::%d", "ct original protocol tcp", "ct original proto-dst %d",
	"ct reply proto-src { 1, %d }", "ct label %d",
	"ct bytes > %d", "ct original packets > %d", "ct reply avgpkt > %d", "ct zone %d", "ct original zone %d",
	"ct id %d",
	"ct count over %d", "ct original saddr 192.0.2.%d", "ip saddr 192.0.2.%d", "ip daddr != 192.0.2.0/24",
	"ip saddr & 0.0.0.255 == 0.0.0.%d",
	"ip dscp cs1", "ip ecn ce", "ip length > %d", "ip id %d", "ip frag-off & 0x1fff != 0", "ip ttl < %d",
	"ip protocol icmp", "ip checksum %d",
	"ip hdrlength 5", "ip version 4", "ip option lsrr exists", "ip option rr ptr %d", "ip6 saddr fd00::/8",
	"ip6 flowlabel %d", "ip6 hoplimit %d",
	"ip6 nexthdr tcp", "ip6 dscp ef", "exthdr hbh exists", "rt type 0", "rt0 addr[1] fd00::1",
	"frag more-fragments 1", "dst nexthdr 6",
	"mh type 1", "srh tag %d", "icmp type echo-request", "icmp code %d", "icmp id %d", "icmpv6 type nd-router-advert",
	"icmpv6 mtu > %d",
	"igmp type membership-query", "tcp sport %d", "tcp dport %d-250", "tcp dport != { 22, 80-90 }",
	"tcp flags syn / syn,ack",
	"tcp flags & (fin|syn|rst) == syn", "tcp sequence > %d", "tcp window %d", "tcp option maxseg size > %d",
	"tcp option sack exists",
	"tcp option 200 exists", "tcp option timestamp tsval > %d", "udp dport %d", "udp length < %d",
	"udplite csumcov %d", "sctp dport %d",
	"sctp chunk data exists", "sctp chunk init-ack init-tag %d", "dccp type request", "ah spi %d", "esp spi %d",
	"comp cpi %d", "th dport %d",
	"@th,16,16 %d", "@nh,0,8 & 0xf0 == 0x40", "@ll,0,48 0x0000%d", "@ih,0,8 %d",
	"@nh,96,32 and 0xffffff00 == 0xc0000200",
	"udp dport 4789 vxlan vni %d", "udp dport 4789 vxlan ip saddr 192.0.2.%d", "udp dport 6081 geneve vni %d",
	"gre ip saddr 192.0.2.%d",
	"vlan id %d", "vlan pcp 1", "ether saddr 02:00:00:00:00:%d", "ether type arp", "arp operation request",
	"arp saddr ip 192.0.2.%d",
	"tcp dport vmap { 1 : drop, %d : continue }", "ip saddr . tcp dport { 192.0.2.1 . 80, 192.0.2.2 . 81-90 }",
	"ip saddr vmap { 192.0.2.0/24 : return, 198.18.0.0/15 : drop }", "iifname . oifname { lo . wire0 }",
	"ip6 saddr . th sport . ip6 daddr { fd00::1 . 1-9 . fd00::/64 }",
	"tcp dport @s1", "ip saddr @s2", "ip saddr . tcp dport @s3", "ct original ip daddr @s4", "iifname @s5",
	"ether saddr @s6", "meta mark @s7",
	"meta l4proto @s8", "tcp dport vmap @m1", "ip saddr . meta mark vmap @m4", "limit rate %d/minute burst 5 packets",
	"limit rate over 10 mbytes/second",
	"quota over 10 mbytes", "quota until %d kbytes used 1 kbytes", "last", "counter", "counter packets %d bytes 2",
	"log prefix \"x %d \" level debug flags all",
	"log group %d snaplen 80 queue-threshold 5", "counter name \"o1\"", "quota name \"o2\"", "limit name \"o3\"",
	"counter name ip saddr map @m5",
	"meta mark set 0x%d", "meta mark set ct mark", "meta mark set meta mark or 0x%d",
	"ct mark set meta mark and 0xff", "meta priority set 1:%d",
	"meta nftrace set 0", "meta pkttype set host", "meta mark set ip saddr map @m2",
	"meta mark set numgen inc mod %d offset 100", "ct zone set %d", "ct label set %d",
	"ct event set new,destroy", "ct helper set \"o4\"", "ct timeout set \"o6\"", "ct expectation set \"o7\"",
	"meta secmark set \"o8\"", "ip dscp set cs1", "ip ttl set %d",
	"ip6 hoplimit set %d", "tcp option maxseg size set rt mtu", "reset tcp option timestamp", "tcp dport set %d",
	"ether daddr set 02:00:00:00:00:01", "ip id set %d",
	"@th,0,16 set 0x%d", "dup to 192.0.2.%d", "dup to 192.0.2.1 device wire0", "add @s2 { ip saddr }",
	"update @s2 { ip saddr timeout 5s limit rate 1/second }",
	"add @s2 { ip daddr counter ct count over 5 }", "delete @s2 { ip saddr }", "flow add @f1", "set add ip saddr @s2",
	"meta mark set jhash ip saddr . ip daddr mod 7 seed 0x%d offset 3",
	"meta mark set ct mark << 8", "ct mark set meta mark ^ 0x%d", "meta mark set (meta mark & 0xffff) | 0x%d0000",
}

// verdicts end rules.
var verdicts = []string{"", "", "accept", "accept", "accept", "drop", "return", "continue", "jump c1", "goto c2",
	"reject", "reject with tcp reset",
	"reject with icmpx admin-prohibited", "reject with icmp port-unreachable", "notrack", "queue num %d bypass",
	"queue flags bypass,fanout to 1-3",
	"queue flags bypass to symhash mod 4", "synproxy mss 1460 wscale 7 sack-perm", "synproxy name \"o5\"",
	"tproxy to :50080", "tproxy ip to 127.0.0.1:50080",
	"snat to 192.0.2.%d", "snat ip to 192.0.2.1-192.0.2.9 random", "dnat to 192.0.2.%d", "dnat ip to 192.0.2.1:80",
	"dnat to tcp dport map @m3",
	"dnat ip to numgen inc mod 2 map { 0 : 192.0.2.1, 1 : 192.0.2.2 }",
	"dnat ip prefix to ip daddr map { 198.18.0.0/24 : 192.0.2.0/24 }",
	"dnat ip to ip saddr . tcp dport map { 192.0.2.1 . 1 : 192.0.2.2 . 2 }", "dnat to :%d-250 persistent",
	"masquerade fully-random", "masquerade to :1024-2048",
	"redirect to :%d", "redirect", "fwd to lo", "fwd ip to 192.0.2.%d device wire0", "vlan id set %d",
	"meta broute set 1"}

// nft returns commands that make tables with objects, chains and rules.
func (g *generator) nft() Set {
	var s Set
	add := func(format string, args ...any) { s = append(s, "nft "+quote(g.fill(fmt.Sprintf(format, args...)))) }
	for range 1 + g.IntN(3) {
		family := one(g, familyNames)
		hooks, own := baseChains[family]
		if !own {
			hooks = baseChains["inet"][:10]
		}
		table := family + " " + one(g, tables[family])
		add("add table %s", table)
		for range 2 + g.IntN(6) {
			add(one(g, objects), table)
		}
		add("add chain %s c1", table)
		add("add chain %s c2 { comment \"x\"; }", table)
		for range 1 + g.IntN(3) {
			chain := one(g, chains)
			if strings.HasPrefix(chain, "c") || g.IntN(3) == 0 {
				add("add chain %s %s", table, chain)
			} else {
				add("add chain %s %s { type %s priority %d; policy %s; }", table, chain, one(g, hooks),
					g.IntN(600)-300,
					one(g, []string{"accept", "accept", "drop"}))
			}
			for range 3 + g.IntN(6) {
				add("add rule %s %s", table, chain+" "+g.rule())
			}
		}
		if g.IntN(8) == 0 {
			add("add table %s { flags dormant; }", table)
		}
	}
	return s
}

// rule returns the text of a rule.
func (g *generator) rule() string {
	var parts []string
	for range g.IntN(3) {
		parts = append(parts, one(g, conditions))
	}
	parts = append(parts, one(g, conditions), one(g, verdicts))
	if g.IntN(5) == 0 {
		parts = append(parts, `comment "`+strings.Repeat("x", g.IntN(127))+`"`)
	}
	return strings.Join(parts, " ")
}
