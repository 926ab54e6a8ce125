package truth_test

import "fairlead/test/truth"

// found are cases of verdicts that were wrong: what independent tests of 496c9123 found (T1 to
// T9, W4, W8), and what generated hosts found.
var found = []named{
	{name: "a field of IPv4 that is not an address of IPv6", script: `nft -f - <<E
table inet t { chain in { type filter hook input priority 0; ip ttl 200 drop; } }
E`, flows: both("lan6 to host6:80", "lan to host:80"),
		judged: map[string]truth.Judgement{"lan6 to host6:80": truth.Right, "lan to host:80": truth.Unknown}},
	{name: "rules at the link of the LAN", script: `nft -f - <<E
table netdev t { chain i { type filter hook ingress device "eth0" priority 0; tcp dport 80 drop; } }
table netdev e { chain e { type filter hook egress device "eth0" priority 0; udp sport 80 drop; } }
E`, flows: both("lan to host:80", "lan to a:80"), judged: all(truth.Right, "lan to host:80", "lan to a:80",
		"lan to host:80/udp", "lan to a:80/udp")},
	{name: "an ingress chain of the family inet at the link of the LAN", script: `nft -f - <<E
table inet t { chain i { type filter hook ingress device "eth0" priority 0; ip saddr 198.18.0.7 tcp dport 80 drop; } }
E`, flows: []string{"lan to host:80", "lan6 to host6:80"}, judged: all(truth.Right, "lan to host:80", "lan6 to host6:80")},
	{name: "ARP that a link's rules drop", script: `nft -f - <<E
table netdev t { chain i { type filter hook ingress device "eth0" priority 0; ether type arp drop; } }
E`, flows: []string{"lan to host:80", "lan6 to host6:80"}, judged: all(truth.Right, "lan to host:80", "lan6 to host6:80")},
	{name: "sockets that are bound to links", script: `listen host tcp 0.0.0.0:8081 dev=br0
listen host tcp 0.0.0.0:8082 dev=eth0
listen host tcp 0.0.0.0:8082
listen host udp 0.0.0.0:8083 dev=eth0
listen host tcp [::]:8084 dev=eth0
listen host tcp 127.0.0.1:8085 dev=eth0`,
		flows: []string{"lan to host:8081", "a to host:8081", "lan to host:8082", "a to host:8082",
			"host to 198.18.0.1:8082",
			"lan to host:8083/udp", "a to host:8083/udp", "lan6 to host6:8084", "host to 127.0.0.1:8085",
			"host to 198.18.0.1:8081"},
		judged: all(truth.Right, "lan to host:8081", "a to host:8081", "lan to host:8082", "a to host:8082",
			"host to 198.18.0.1:8082", "lan to host:8083/udp", "a to host:8083/udp", "lan6 to host6:8084",
			"host to 127.0.0.1:8085", "host to 198.18.0.1:8081")},
	{name: "an address translated into one of several", script: `nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; tcp dport 8080 dnat to 10.77.0.2-10.77.0.3:80; tcp dport 70-90 dnat to 10.77.0.2:70-90; } }
E
iptables-nft -t nat -A PREROUTING -p tcp --dport 8081 -j DNAT --to-destination 10.77.0.2-10.77.0.3:80
iptables-legacy -t nat -A PREROUTING -p tcp --dport 8082 -j DNAT --to-destination 10.77.0.2-10.77.0.3:80`,
		flows: []string{"lan to host:8080", "lan to host:80", "lan to host:8081", "lan to host:8082"},
		judged: map[string]truth.Judgement{"lan to host:8080": truth.Unknown, "lan to host:80": truth.Right,
			"lan to host:8081": truth.Unknown, "lan to host:8082": truth.Unknown}},
	{name: "a route with several next hops", script: `ip addr add 10.79.0.1/24 dev vc
ip route add 10.80.0.0/24 nexthop via 10.77.0.2 nexthop via 10.78.0.2`, flows: []string{"lan to 10.80.0.1:80"},
		judged: all(truth.Unknown, "lan to 10.80.0.1:80")},
	{name: "NOTRACK of iptables", script: `iptables-nft -t raw -A PREROUTING -s 10.77.0.2 -j NOTRACK
iptables-nft -t raw -A PREROUTING -s 10.77.0.3 -j CT --notrack
iptables-nft -A INPUT -m conntrack --ctstate UNTRACKED -j DROP`, flows: both("a to host:80", "b to host:80", "lan to host:80"),
		judged: all(truth.Right, "a to host:80", "b to host:80", "lan to host:80")},
	{name: "NOTRACK of legacy iptables", script: `iptables-legacy -t raw -A PREROUTING -s 10.77.0.2 -j NOTRACK
iptables-legacy -A INPUT -m conntrack --ctstate UNTRACKED -j DROP`, flows: both("a to host:80", "b to host:80"),
		judged: all(truth.Right, "a to host:80", "b to host:80")},
	{name: "an answer whose request has no connection", script: `nft -f - <<E
table ip r { chain pre { type filter hook prerouting priority -300; ip saddr 10.77.0.2 notrack; }
chain out { type filter hook output priority 0; ct state invalid drop; } }
E`, flows: both("a to host:80", "b to host:80"), judged: all(truth.Right, "a to host:80", "a to host:80/udp")},
	{name: "a bridge's own setting", script: `ip link set br0 type bridge nf_call_iptables 1
iptables-nft -P FORWARD DROP`, flows: []string{"a to b:80", "a6 to b6:80"}, judged: all(truth.Right, "a to b:80", "a6 to b6:80")},
	{name: "a set that an earlier chain fills", script: `nft -f - <<E
table inet t { set s { type ipv4_addr; flags dynamic; size 99; }
chain pre { type filter hook prerouting priority -150; ip saddr 10.77.0.2 add @s { ip saddr }; }
chain in { type filter hook input priority 0; ip saddr @s drop; } }
E`, flows: []string{"a to host:80", "a6 to host6:80"},
		judged: map[string]truth.Judgement{"a to host:80": truth.Unknown, "a6 to host6:80": truth.Right}},
	{name: "a full accept queue", script: `listen host tcp 0.0.0.0:8081 full
listen a tcp [::]:8082 full`, flows: []string{"lan to host:8081", "host to 127.0.0.1:8081", "lan to a:8082", "b to a:8082"},
		judged: all(truth.Right, "lan to host:8081", "host to 127.0.0.1:8081", "lan to a:8082", "b to a:8082")},
	{name: "a socket that requires a TTL", script: `listen host tcp 0.0.0.0:8081 minttl=255
listen host tcp [::]:8082 minttl=255`, flows: []string{"lan to host:8081", "lan6 to host6:8082"},
		judged: all(truth.Unknown, "lan to host:8081", "lan6 to host6:8082")},
	{name: "no answers to ARP", script: `sysctl -qw net.ipv4.conf.eth0.arp_ignore=8 net.ipv4.conf.vc.arp_ignore=8`,
		flows: []string{"lan to host:80", "c to host:80", "lan6 to host6:80", "a to host:80"},
		judged: map[string]truth.Judgement{"lan to host:80": truth.Unknown, "c to host:80": truth.Right,
			"a to host:80": truth.Right}},
	{name: "a translation to an address that does not answer", script: `nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; tcp dport 8080 dnat to 10.77.0.99:80; tcp dport 8081 dnat to 198.18.0.99:80; } }
E`, flows: []string{"lan to host:8080", "a to host:8081"}, judged: all(truth.Right, "lan to host:8080")},
	{name: "strict reverse path by another link", script: `ip link add vd type veth peer name eth1 netns "$a"
ip addr add 10.79.0.1/24 dev vd
ip link set vd up
a ip addr add 10.79.0.2/24 dev eth1
a ip link set eth1 up
a ip route replace default via 10.79.0.1
sysctl -qw net.ipv4.conf.all.rp_filter=1`, flows: []string{"lan to a:80", "c to a:80", "b to a:80"},
		judged: all(truth.Right, "lan to a:80", "c to a:80", "b to a:80")},
	{name: "a condition that is not evaluated hides only itself", script: `nft -f - <<E
table inet t { chain in { type filter hook input priority 0; ip saddr 10.77.0.2 ip ttl 99 tcp dport 80 drop; ip daddr 10.78.0.1 limit rate 1/hour accept; ip saddr 10.77.0.3 ip daddr 10.77.0.1 drop; ip saddr . ip ttl { 10.78.0.2 . 9 } drop; } }
E`, flows: both("a to host:80", "b to host:80", "lan to host:80", "c to host:80", "a to 198.18.0.1:80"),
		judged: map[string]truth.Judgement{"a to host:80": truth.Unknown, "a to host:80/udp": truth.Right,
			"b to host:80":   truth.Right,
			"lan to host:80": truth.Right, "c to host:80": truth.Unknown}},
	{name: "a doubt that makes no difference", script: `nft -f - <<E
table inet t { chain in { type filter hook input priority 0; limit rate 1/hour accept; meta cpu 77 accept; }
chain later { type filter hook input priority 10; ip saddr 10.77.0.2 drop; } }
E`, flows: []string{"a to host:80", "b to host:80"}, judged: all(truth.Right, "a to host:80", "b to host:80")},
	{name: "lists of states with DNAT",
		script: `iptables-nft -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.77.0.2:80
iptables-nft -P FORWARD DROP
iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT`,
		flows:  []string{"lan to host:8080", "lan to a:80", "c to a:80", "a to c:80"},
		judged: all(truth.Right, "lan to host:8080", "lan to a:80", "c to a:80", "a to c:80")},
	{name: "lists of states with DNAT in legacy iptables",
		script: `iptables-legacy -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.77.0.2:80
iptables-legacy -P FORWARD DROP
iptables-legacy -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT`,
		flows:  []string{"lan to host:8080", "lan to a:80", "c to a:80"},
		judged: all(truth.Right, "lan to host:8080", "lan to a:80", "c to a:80")},
	{name: "source NAT as a state", script: `iptables-nft -t nat -A POSTROUTING -o vc -j MASQUERADE
iptables-nft -A INPUT -m conntrack --ctstate SNAT -j DROP
iptables-nft -A FORWARD -m conntrack --ctstate SNAT -j DROP`, flows: []string{"a to c:80", "a to host:80", "c to a:80"},
		judged: all(truth.Right, "a to c:80", "a to host:80", "c to a:80")},
	{name: "a neighbour that is known from its own request", script: `sysctl -qw net.ipv4.conf.all.arp_ignore=8`,
		flows: []string{"host to c:80", "host to a:80"}, judged: all(truth.Right, "host to c:80", "host to a:80")},
	{name: "states before connection tracking", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority -300; ip saddr 10.77.0.2 ct state new drop; ip saddr 10.77.0.3 ct state invalid drop; } }
E
iptables-nft -t raw -A PREROUTING -s 10.78.0.2 -m conntrack --ctstate NEW -j DROP`,
		flows: both("a to host:80", "b to host:80", "c to host:80"), judged: all(truth.Right, "a to host:80",
			"b to host:80",
			"c to host:80", "a to host:80/udp", "b to host:80/udp", "c to host:80/udp")},
	{name: "NAT of the other family", script: `nft -f - <<E
table inet n { chain pre { type nat hook prerouting priority -100; tcp dport 8080 dnat ip to 10.77.0.2:80; tcp dport 8080 dnat ip6 to [fd77::3]:80; } }
E`, flows: []string{"lan to host:8080", "lan6 to host6:8080"}, judged: all(truth.Right, "lan to host:8080", "lan6 to host6:8080")},
	{name: "a bridge's postrouting has no input port", script: `nft -f - <<E
table bridge t { chain post { type filter hook postrouting priority 0; iifname "pa" drop; oifname "pb" ip saddr 10.78.0.2 drop; } }
E`, flows: []string{"a to b:80", "c to b:80", "c to a:80"}, judged: all(truth.Right, "a to b:80", "c to b:80", "c to a:80")},
	{name: "marks of Neighbor Discovery", script: `nft -f - <<E
table inet m { chain p { type filter hook prerouting priority -150; iifname "vc" meta mark set 3; }
chain i { type filter hook input priority 0; meta mark 3 drop; } }
E`, flows: []string{"a6 to c6:80", "host6 to c6:80", "a6 to b6:80"}, judged: all(truth.Right, "a6 to c6:80", "host6 to c6:80",
		"a6 to b6:80")},
	{name: "policy routing by the source that the route chooses", script: `b ip rule add from 10.77.0.3 table 100
b ip route add blackhole default table 100`, flows: both("b to host:80", "b to a:80", "a to b:80"),
		judged: all(truth.Right, "b to host:80", "b to host:80/udp", "a to b:80")},
	{name: "Neighbor Discovery in the firewall of bridged packets", script: `nft -f - <<E
table inet r { chain i { type filter hook forward priority 0; ct state untracked drop; } }
E`, flows: []string{"b6 to a6:81", "b6 to a6:80", "b to a:80", "b6 to c6:80"}, judged: all(truth.Right, "b6 to a6:81",
		"b6 to a6:80", "b to a:80", "b6 to c6:80")},
	{name: "connection tracking of one direction", script: `nft -f - <<E
table inet r { chain c { type filter hook output priority -300; meta protocol ip notrack; }
chain i { type filter hook input priority 0; ct state new drop; } }
E`, flows: []string{"host to a:80", "host6 to a6:80"}, judged: map[string]truth.Judgement{"host to a:80": truth.Unknown,
		"host6 to a6:80": truth.Right}},
	{name: "Neighbor Discovery before connection tracking", script: `nft -f - <<E
table inet r { chain c { type filter hook output priority -300; ct state invalid drop; }
chain i { type filter hook input priority 0; ct state untracked accept; } }
E`, flows: []string{"lan6 to a6:80", "a6 to b6:80", "host to a:80"}, judged: all(truth.Right, "lan6 to a6:80", "a6 to b6:80",
		"host to a:80")},
	{name: "NOTRACK of a packet that has a connection",
		script: `iptables-nft -t raw -A PREROUTING -m state --state NEW -j CT --notrack
iptables-nft -A INPUT -m conntrack --ctstate INVALID -j DROP
nft -f - <<E
table ip r { chain in { type filter hook input priority -1; ip saddr 10.77.0.2 notrack; ct state untracked drop; } }
E`, flows: []string{"host to 127.0.0.1:80", "a to host:80"}, judged: all(truth.Right, "host to 127.0.0.1:80", "a to host:80")},
	{name: "NAT that changes nothing", script: `iptables-nft -t nat -A POSTROUTING -j MASQUERADE
iptables-nft -A INPUT -m conntrack --ctstate SNAT,DNAT -j DROP`, flows: both("host to a:80", "a to host:80"),
		judged: all(truth.Right, "host to a:80", "host to a:80/udp", "a to host:80", "a to host:80/udp")},
	{name: "an answer that does not come from the dialled address",
		script: `sysctl -qw net.bridge.bridge-nf-call-iptables=0
nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; ip daddr 10.77.0.1 dnat to 10.77.0.3; } }
E`, flows: both("a to host:80"), judged: all(truth.Right, "a to host:80", "a to host:80/udp")},
	{name: "source NAT to the address of a neighbour with bridged packets in the firewall",
		script: natToNeighbour + "sysctl -qw net.bridge.bridge-nf-call-iptables=1", flows: both("lan to b:80"),
		judged: all(truth.Right, "lan to b:80", "lan to b:80/udp")},
	{name: "source NAT to the address of a neighbour",
		script: natToNeighbour + "sysctl -qw net.bridge.bridge-nf-call-iptables=0", flows: both("lan to b:80"),
		judged: all(truth.Right, "lan to b:80", "lan to b:80/udp")},
	{name: "NAT back to the bridge with bridged packets in the firewall",
		script: natToBridge, flows: both("a to host:8080", "b to host:8080", "a to b:80", "c to host:8080"),
		judged: all(truth.Right, "a to host:8080", "a to host:8080/udp", "b to host:8080", "a to b:80",
			"c to host:8080"),
		reasons: map[string]string{"b to host:8080": "br0 sends no packet back to the port from which it came, pb"}},
	{name: "NAT back to the port of a bridge", script: natToBridge + `
bridge link set dev pb hairpin on
nft add rule ip n post ip saddr 10.77.0.0/24 ip daddr 10.77.0.0/24 masquerade`,
		flows:  both("a to host:8080", "b to host:8080"),
		judged: all(truth.Right, "a to host:8080", "a to host:8080/udp", "b to host:8080", "b to host:8080/udp")},
	{name: "NAT back to a bridge of a host that forwards nothing", script: natToBridge + `
sysctl -qw net.ipv4.ip_forward=0`, flows: []string{"a to host:8080", "c to host:8080"},
		judged: map[string]truth.Judgement{"a to host:8080": truth.Unknown, "c to host:8080": truth.Right}},
	{name: "NAT back to an isolated port of a bridge", script: natToBridge + `
bridge link set dev pa isolated on
bridge link set dev pb isolated on`, flows: both("a to host:8080"),
		judged: all(truth.Right, "a to host:8080", "a to host:8080/udp")},
	{name: "rules for a packet that NAT sends back to its bridge", script: natToBridge + `
nft -f - <<E
table ip f { chain f { type filter hook forward priority 0; iifname "br0" oifname "br0" udp dport 80 drop; }
chain p { type filter hook postrouting priority 0; iifname "br0" ip daddr 10.77.0.3 drop; } }
E`, flows: both("a to host:8080", "c to host:8080"),
		judged: all(truth.Right, "a to host:8080", "a to host:8080/udp", "c to host:8080")},
	{name: "rules for frames and NAT back to their bridge", script: natToBridge + `
nft -f - <<E
table bridge t { chain in { type filter hook output priority 0; ip daddr 10.77.0.3 drop; } }
E`, flows: []string{"a to host:8080"}, judged: all(truth.Unknown, "a to host:8080")},
	{name: "IPv6 NAT back to the bridge", script: `sysctl -qw net.bridge.bridge-nf-call-ip6tables=1
nft -f - <<E
table ip6 n { chain pre { type nat hook prerouting priority -100; ip6 daddr fd77::1 tcp dport 8080 dnat to [fd77::3]:80; } }
E`, flows: []string{"a6 to host6:8080"}, judged: all(truth.Right, "a6 to host6:8080")},
	{name: "IPv6 NAT back to a bridge of a host that forwards nothing",
		script: `sysctl -qw net.bridge.bridge-nf-call-ip6tables=1 net.ipv6.conf.all.forwarding=0
nft -f - <<E
table ip6 n { chain pre { type nat hook prerouting priority -100; ip6 daddr fd77::1 tcp dport 8080 dnat to [fd77::3]:80; } }
E`, flows: []string{"a6 to host6:8080"}, judged: all(truth.Right, "a6 to host6:8080")},
	{name: "a NAT chain that drops nothing without connection tracking", script: `nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; ip saddr 10.77.0.2 drop; } }
E`, flows: both("a to host:80", "b to host:80"), judged: map[string]truth.Judgement{"a to host:80": truth.Unknown,
		"b to host:80": truth.Right}},
}

// natToBridge translates a port of the host to b, also for clients on b's bridge, whose packets pass
// the IP rules.
const natToBridge = `sysctl -qw net.bridge.bridge-nf-call-iptables=1
nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; ip daddr { 10.77.0.1, 10.78.0.1 } meta l4proto { tcp, udp } th dport 8080 dnat to 10.77.0.3:80; }
chain post { type nat hook postrouting priority 100; } }
E`

// natToNeighbour makes clients of the LAN reach b from the address of a, b's neighbour on the bridge.
const natToNeighbour = `nft add table inet n
nft 'add chain inet n post { type nat hook postrouting priority 100; }'
nft 'add rule inet n post snat ip to 10.77.0.2'
`
