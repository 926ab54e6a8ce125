package truth_test

import (
	"slices"
	"strings"

	"fairlead/test/truth"
)

// named is a host that a script sets up, and flows through it.
type named struct {
	name   string
	script string
	// drop are links of the host at which an eBPF program of another program drops
	// all incoming packets.
	drop  []string
	flows []string
	// reasons are what the verdicts of flows must contain.
	reasons map[string]string
	// judged are judgements of flows; the others may be right or unknown.
	judged map[string]truth.Judgement
}

// commands returns the script as one command, and the commands of its sockets. nft
// requires a newline after each block.
func (c named) commands() []string {
	var all []string
	var script strings.Builder
	script.WriteString("set -e\n")
	for line := range strings.Lines(c.script) {
		if strings.HasPrefix(line, "listen ") {
			all = append(all, strings.TrimSpace(line))
			continue
		}
		script.WriteString(line)
	}
	return append(all, strings.ReplaceAll(script.String(), "; }", "\n}\n"))
}

// both repeats flows for TCP and UDP.
func both(flows ...string) []string {
	var all []string
	for _, f := range flows {
		all = append(all, f, f+"/udp")
	}
	return all
}

// cases change the host of topology in host.go. Each has flows that are delivered and flows
// that are not.
var cases = append([]named{
	{name: "nothing changed", script: "", flows: both("a to b:80", "lan to a:80", "host to a:80", "a to host:80",
		"c to a:80", "a6 to b6:80", "lan6 to a6:80", "host6 to c6:80")},
	{name: "no listener", script: "", flows: []string{"a to b:81", "lan to host:81", "a6 to b6:81/udp"}},

	// Marks.
	{name: "a mark is dropped later", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 meta mark set 0x10; }
chain forw { type filter hook forward priority 0; meta mark 0x10 drop; } }
E`, flows: []string{"a to c:80", "b to c:80", "lan to c:80", "a to host:80"}},
	{name: "bits of a mark", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 meta mark set meta mark | 0x100; ip saddr 10.77.0.3 meta mark set meta mark | 0x200; }
chain in { type filter hook input priority 0; meta mark & 0x300 == 0x100 drop; } }
E`, flows: []string{"a to host:80", "b to host:80", "lan to host:80"}},
	{name: "ranges of marks", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; meta mark set ip saddr map { 10.77.0.2 : 5, 10.77.0.3 : 50 }; }
chain in { type filter hook input priority 0; meta mark 1-9 drop; meta mark 0x1000-0x2000 drop; } }
E`, flows: []string{"a to host:80", "b to host:80", "lan to host:80"}},
	{name: "the connection's mark", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 ct mark set 7; }
chain forw { type filter hook forward priority 0; ct mark 7 drop; } }
E`, flows: []string{"a to c:80", "b to c:80"}},
	{name: "a saved and restored mark decides about the answer", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 meta mark set 9 ct mark set meta mark; }
chain post { type filter hook postrouting priority 0; meta mark set ct mark; meta mark 9 ct state established drop; } }
E`, flows: []string{"a to c:80", "b to c:80"}},
	{name: "xor of a mark", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 meta mark set 0xff; meta mark set meta mark ^ 0x0f; }
chain in { type filter hook input priority 0; meta mark 0xf0 drop; } }
E`, flows: []string{"a to host:80", "b to host:80"}},
	{name: "MARK of iptables-nft",
		script: `iptables-nft -t mangle -A PREROUTING -s 10.77.0.2 -j MARK --set-xmark 0x20/0xf0
iptables-nft -A FORWARD -m mark --mark 0x20/0x20 -j DROP`, flows: both("a to c:80", "b to c:80")},
	{name: "MARK of legacy iptables",
		script: `iptables-legacy -t mangle -A PREROUTING -s 10.77.0.2 -j MARK --set-mark 0x20
iptables-legacy -A FORWARD -m mark --mark 0x20/0x20 -j DROP`, flows: both("a to c:80", "b to c:80")},
	{name: "CONNMARK of iptables-nft", script: `iptables-nft -t mangle -A PREROUTING -s 10.77.0.2 -j MARK --set-mark 3
iptables-nft -t mangle -A PREROUTING -j CONNMARK --save-mark
iptables-nft -t mangle -A FORWARD -j MARK --set-mark 0
iptables-nft -t mangle -A POSTROUTING -j CONNMARK --restore-mark
iptables-nft -t mangle -A POSTROUTING -m mark --mark 3 -j DROP`, flows: []string{"a to c:80", "b to c:80"}},
	{name: "CONNMARK of legacy iptables",
		script: `iptables-legacy -t mangle -A PREROUTING -s 10.77.0.2 -j CONNMARK --set-mark 3
iptables-legacy -A FORWARD -m connmark --mark 3 -j DROP`, flows: []string{"a to c:80", "b to c:80"}},
	{name: "policy routing by a mark", script: `ip rule add fwmark 5 table 100
ip route add blackhole default table 100
nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 ip daddr 10.78.0.2 meta mark set 5; }
chain out { type route hook output priority -150; ip daddr 10.77.0.3 meta mark set 5; } }
E`, flows: []string{"a to c:80", "b to c:80", "host to a:80", "host to b:80"}},
	{name: "a mark set by a filter does not cause another route lookup", script: `ip rule add fwmark 5 table 100
ip route add blackhole default table 100
nft -f - <<E
table inet t { chain out { type filter hook output priority 0; ip daddr 10.77.0.3 meta mark set 5; } }
E`, flows: []string{"host to a:80", "host to b:80"}},
	{name: "a mark does not leave the namespace", script: `nft -f - <<E
table inet t { chain out { type filter hook output priority 0; meta mark set 5; } }
E
a nft -f - <<E
table inet t { chain in { type filter hook input priority 0; meta mark 5 drop; } }
E`, flows: []string{"host to a:80", "host to b:80"}},

	// Sets, maps and chains.
	{name: "sets and intervals", script: `nft -f - <<E
table inet t { set s { type ipv4_addr; flags interval; elements = { 10.77.0.2, 10.78.0.0/30 }; } set p { type inet_service; flags interval; elements = { 70-90 }; }
chain in { type filter hook input priority 0; ip saddr @s tcp dport @p drop; } }
E`, flows: both("a to host:80", "b to host:80", "c to host:80")},
	{name: "concatenations", script: `nft -f - <<E
table inet t { set s { type ipv4_addr . inet_service; elements = { 10.77.0.2 . 80 }; }
chain in { type filter hook input priority 0; ip saddr . tcp dport @s drop; } }
E`, flows: both("a to host:80", "b to host:80")},
	{name: "a verdict map with an element for all others", script: `nft -f - <<E
table inet t { chain in { type filter hook input priority 0; ip saddr vmap { 10.77.0.2 : accept, * : drop }; } }
E`, flows: []string{"a to host:80", "b to host:80"}},
	{name: "a verdict map", script: `nft -f - <<E
table inet t { chain no { drop; } chain in { type filter hook input priority 0; iifname vmap { "br0" : jump no, "vc" : accept }; } }
E`, flows: []string{"a to host:80", "c to host:80", "lan to host:80"}},
	{name: "a statement after a verdict map", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ct state vmap { established : accept, invalid : drop } meta mark set 7; }
chain in { type filter hook input priority 0; meta mark != 0 drop; } }
E`, flows: []string{"a to host:80"}},
	{name: "a statement after a verdict map that continues", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -150; ip saddr vmap { 10.77.0.2 : continue, 10.77.0.3 : accept } meta mark set 7; }
chain in { type filter hook input priority 0; meta mark 7 drop; } }
E`, flows: []string{"a to host:80", "b to host:80", "lan to host:80"}},
	{name: "priorities around NAT", script: `nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; ip daddr 198.18.0.1 tcp dport 8080 dnat to 10.77.0.2:80; } }
table inet t { chain pre { type filter hook prerouting priority 0; ip daddr 10.77.0.2 tcp dport 80 ip saddr 10.78.0.2 drop; } }
E`, flows: []string{"lan to host:8080", "c to 198.18.0.1:8080"}},
	{name: "NAT in output", script: `nft -f - <<E
table ip n { chain out { type nat hook output priority -100; ip daddr 198.18.0.1 tcp dport 8080 dnat to 10.77.0.2:80; ip daddr 198.18.0.1 tcp dport 8081 dnat to 10.77.0.3:80; } }
table inet t { chain out { type filter hook output priority 0; ip daddr 10.77.0.3 tcp dport 80 drop; } }
E`, flows: []string{"host to 198.18.0.1:8080", "host to 198.18.0.1:8081"}},
	{name: "masquerading and an answer that is dropped", script: `nft -f - <<E
table ip n { chain post { type nat hook postrouting priority 100; ip saddr 10.77.0.0/24 oifname "vc" masquerade; } }
table inet t { chain forw { type filter hook forward priority 0; ct state established ip daddr 10.77.0.3 drop; } }
E`, flows: both("a to c:80", "b to c:80")},
	{name: "no connection tracking, no NAT", script: `nft -f - <<E
table ip r { chain pre { type filter hook prerouting priority -300; ip saddr 10.78.0.2 notrack; } }
table ip n { chain pre { type nat hook prerouting priority -100; tcp dport 8080 dnat to 10.77.0.2:80; } }
E`, flows: []string{"c to 198.18.0.1:8080", "lan to host:8080"}},
	{name: "redirect", script: `nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; tcp dport 8080 redirect to :80; } }
E`, flows: []string{"lan to host:8080", "a to host:8080", "host to 198.18.0.1:8080"}},
	{name: "a dormant table", script: `nft -f - <<E
table inet t { flags dormant; chain in { type filter hook input priority 0; policy drop; } }
E`, flows: []string{"lan to host:80", "a to host:80"}},

	// iptables.
	{name: "legacy iptables", script: `iptables-legacy -P FORWARD DROP
iptables-legacy -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables-legacy -A FORWARD -s 10.77.0.2 -j ACCEPT`, flows: both("a to c:80", "b to c:80", "a to lan:80")},
	{name: "answers that legacy iptables drops", script: `iptables-legacy -P FORWARD DROP
iptables-legacy -A FORWARD -s 10.77.0.2 -j ACCEPT`, flows: both("a to c:80")},
	{name: "iptables-nft", script: `iptables-nft -P INPUT DROP
iptables-nft -A INPUT -i lo -j ACCEPT
iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT
iptables-nft -A INPUT -p tcp -m multiport --dports 22,80 -s 10.77.0.0/24 -j ACCEPT`,
		flows: both("a to host:80", "c to host:80")},
	{name: "rejected", script: `iptables-nft -A INPUT -p tcp --dport 80 -s 10.77.0.2 -j REJECT --reject-with tcp-reset
iptables-legacy -A INPUT -p tcp --dport 80 -s 10.77.0.3 -j REJECT`,
		flows: []string{"a to host:80", "b to host:80", "c to host:80"}},
	{name: "flags of TCP", script: `iptables-nft -A INPUT -i br0 -p tcp --syn -j DROP
iptables-legacy -A INPUT -i vc -p tcp --tcp-flags SYN,ACK SYN -j DROP`, flows: both("a to host:80", "c to host:80")},
	{name: "a random drop", script: `iptables-nft -A FORWARD -m statistic --mode random --probability 0.5 -j DROP`,
		flows: []string{"a to c:80"}},

	// Bridges.
	{name: "isolated ports", script: `bridge link set dev pa isolated on
bridge link set dev pb isolated on`, flows: append(both("a to b:80", "a to host:80", "lan to b:80"), "a6 to b6:80")},
	{name: "one isolated port", script: `bridge link set dev pa isolated on`,
		flows: []string{"a to b:80", "b to a:80"}},
	{name: "a port that blocks", script: `bridge link set dev pa state 0`,
		flows: []string{"a to b:80", "host to a:80", "host to b:80"}},
	{name: "rules of a bridge", script: `nft -f - <<E
table bridge t { chain forw { type filter hook forward priority 0; ip saddr 10.77.0.2 tcp dport 80 drop; } chain in { type filter hook input priority 0; iifname "pb" ip protocol udp drop; } }
E`, flows: both("a to b:80", "b to a:80", "a to host:80", "b to host:80")},
	{name: "ARP that a bridge drops", script: `nft -f - <<E
table bridge t { chain forw { type filter hook forward priority 0; ether type arp drop; } }
E`, flows: []string{"a to b:80", "a to host:80", "a6 to b6:80"}},
	{name: "ebtables", script: `ebtables-nft -A FORWARD -p IPv4 --ip-src 10.77.0.2 -j DROP`,
		flows: []string{"a to b:80", "b to a:80", "a to c:80"}},
	{name: "a wrong entry in the forwarding table",
		script: `bridge fdb replace "$(mac a ip -o link show eth0)" dev pb master static`,
		flows:  []string{"b to a:80", "host to a:80", "host to b:80"}},
	{name: "rules of a link", script: `nft -f - <<E
table netdev t { chain i { type filter hook ingress device "pa" priority 0; tcp dport 80 drop; } chain o { type filter hook egress device "vc" priority 0; ip saddr 10.77.0.3 drop; } }
E`, flows: []string{"a to b:80", "a to b:80/udp", "a to c:80/udp", "b to c:80", "host to a:80", "host to c:80"}},
	{name: "a mark set by rules of a link", script: `nft -f - <<E
table netdev t { chain i { type filter hook ingress device "vc" priority 0; tcp dport 80 meta mark set 4; } }
table inet t { chain in { type filter hook input priority 0; meta mark 4 drop; } }
E`, flows: both("c to host:80")},
	{name: "another program's eBPF program", drop: []string{"pa"},
		flows: []string{"a to b:80", "b to a:80", "b to host:80"}},

	// Neighbours.
	{name: "a wrong permanent neighbour",
		script: `a ip neigh replace 10.77.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:99 dev vc nud permanent`,
		flows: []string{"a to b:80", "a to host:80", "b to a:80", "host to c:80", "b to host:80"}},
	{name: "a right permanent neighbour",
		script: `a ip neigh replace 10.77.0.3 lladdr "$(mac b ip -o link show eth0)" dev eth0 nud permanent
a ip neigh replace fd77::3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
		flows: []string{"a to b:80", "a6 to b6:80", "a6 to host6:80"}},
	{name: "a permanent neighbour with the router's hardware address",
		script: `a ip neigh replace 10.77.0.3 lladdr "$(mac ip -o link show br0)" dev eth0 nud permanent
sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.br0.send_redirects=0`, flows: []string{"a to b:80"}},
	{name: "answers of ARP are dropped", script: `nft -f - <<E
table arp t { chain in { type filter hook input priority 0; arp operation reply drop; } }
E`, flows: []string{"a to host:80"}, judged: map[string]truth.Judgement{"a to host:80": truth.Unknown}},
	{name: "answers of ARP are dropped that the host asks for", script: `nft -f - <<E
table arp t { chain in { type filter hook input priority 0; arp operation reply drop; } }
E`, flows: []string{"host to a:80"}, judged: map[string]truth.Judgement{"host to a:80": truth.Right}},
	{name: "sources of Neighbor Discovery", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority raw; fib saddr type local drop; fib saddr type != unicast drop; fib saddr . iif oif missing drop; } }
E`, flows: []string{"a6 to host6:80", "host6 to a6:80"}, judged: map[string]truth.Judgement{
		"a6 to host6:80": truth.Right, "host6 to a6:80": truth.Right}},
	{name: "no ARP", script: `c ip link set eth0 arp off`,
		flows: []string{"host to c:80", "c to host:80", "a to c:80"}},
	{name: "ARP that is filtered", script: `b nft -f - <<E
table arp t { chain in { type filter hook input priority 0; policy drop; } }
E`, flows: []string{"a to b:80", "a6 to b6:80", "a to host:80"}},
	{name: "no Neighbor Discovery", script: `b nft -f - <<E
table ip6 t { chain in { type filter hook input priority 0; policy drop; tcp dport 80 accept; ct state established accept; } }
E
c nft -f - <<E
table ip6 t { chain in { type filter hook input priority 0; policy drop; icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; tcp dport 80 accept; ct state established accept; } }
E`, flows: []string{"a6 to b6:80", "host6 to c6:80", "a to b:80"}},

	// Routes, and links.
	{name: "no route back", script: `a ip route add blackhole 10.77.0.3/32
c ip route add unreachable 10.77.0.2/32
b ip route add prohibit 198.18.0.7/32`, flows: []string{"b to a:80", "a to c:80", "lan to b:80", "b to c:80",
		"lan to a:80", "b to a:80/udp"}},
	{name: "strict reverse path", script: `ip link add vd type veth peer name eth1 netns "$a"
ip addr add 10.79.0.1/24 dev vd
ip link set vd up
a ip addr add 10.79.0.2/24 dev eth1
a ip link set eth1 up
a ip route add 10.78.0.0/24 via 10.79.0.1
a sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth1.rp_filter=1`,
		flows:   []string{"c to 10.77.0.2:80", "c to 10.79.0.2:80", "lan to a:80", "a to c:80"},
		reasons: map[string]string{"c to 10.77.0.2:80": "rp_filter: answers to 10.78.0.2 would leave via eth1, not via eth0"}},
	{name: "loose reverse path", script: `a ip route del default
a sysctl -qw net.ipv4.conf.eth0.rp_filter=2`, flows: []string{"c to a:80", "b to a:80"},
		reasons: map[string]string{"c to a:80": "rp_filter: there is no route back to 10.78.0.2"}},
	{name: "strict reverse path at the client", script: `ip link add vd type veth peer name eth1 netns "$a"
ip addr add 10.79.0.1/24 dev vd
ip link set vd up
a ip addr add 10.79.0.2/24 dev eth1
a ip link set eth1 up
a ip route add 10.78.0.2/32 via 10.77.0.1
ip route add 10.77.0.2/32 dev vd
a sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1 net.ipv4.conf.eth1.rp_filter=1`,
		flows:   []string{"a to c:80", "b to c:80"},
		reasons: map[string]string{"a to c:80": "the answer is lost: a cannot route packets to 10.77.0.2: rp_filter: answers to 10.78.0.2 would leave via eth0, not via eth1"}},
	{name: "a link that is down", script: `b ip link set eth0 down`,
		flows: []string{"a to b:80", "b to a:80", "host to b:80", "a to host:80"},
		reasons: map[string]string{"a to b:80": "eth0 of b is down", "host to b:80": "eth0 of b is down",
			"b to a:80": "links that are down: eth0"}},
	{name: "loopback that is down", script: `a ip link set lo down`, flows: []string{"a to 10.77.0.2:80", "b to a:80"}},
	{name: "an unused address", script: "",
		flows: []string{"a to 10.77.0.99:80", "host to 10.77.0.99:80", "lan to 10.77.0.99:80", "a6 to fd77::99:80"},
		reasons: map[string]string{"a to 10.77.0.99:80": "no interface on br0 has 10.77.0.99",
			"host to 10.77.0.99:80": "no interface on br0 has 10.77.0.99",
			"lan to 10.77.0.99:80":  "no interface on br0 has 10.77.0.99",
			"a6 to fd77::99:80":     "no interface on br0 has fd77::99"}},
	{name: "no forwarding", script: `sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0`,
		flows: []string{"lan to a:80", "a to host:80", "lan6 to a6:80", "a to b:80"}},
	{name: "rules of the sandbox", script: `a nft -f - <<E
table inet t { chain in { type filter hook input priority 0; ip saddr 10.77.0.3 drop; } chain out { type filter hook output priority 0; ip daddr 10.78.0.2 drop; } }
E`, flows: []string{"b to a:80", "host to a:80", "a to c:80", "c to a:80", "a to b:80"}},
	{name: "policy routing by a port", script: `ip rule add ipproto tcp dport 80 table 100
ip route add blackhole default table 100`, flows: []string{"a to c:80"}},
	{name: "bridged packets pass the firewall", script: `sysctl -qw net.bridge.bridge-nf-call-iptables=1
iptables-nft -P FORWARD DROP
iptables-nft -A FORWARD -s 10.77.0.3 -j ACCEPT
iptables-nft -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT`,
		flows: []string{"a to b:80", "b to a:80", "b to c:80"}},
	{name: "proxy ARP", script: `sysctl -qw net.ipv4.conf.vc.proxy_arp=1
c ip route add 10.77.0.0/24 dev eth0`, flows: []string{"c to a:80"}},
	{name: "loopback addresses from outside", script: `c ip route add 127.0.0.5/32 via 10.78.0.1 table local`,
		flows: []string{"c to 127.0.0.5:80"}},
	{name: "the client's address on the host", script: `ip addr add 10.77.0.2/32 dev lo`,
		flows: []string{"a to host:80", "b to host:80"}},
}, slices.Concat(found, read)...)

// all expects the same judgement of several flows.
func all(j truth.Judgement, flows ...string) map[string]truth.Judgement {
	found := map[string]truth.Judgement{}
	for _, f := range flows {
		found[f] = j
	}
	return found
}
