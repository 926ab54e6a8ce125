package truth_test

import "fairlead/test/truth"

// read are cases of verdicts that were wrong: what readers of bb5666c1 and 69aa5243 found.
var read = []named{
	{name: "programs at the server's cgroup", script: `listen host tcp 0.0.0.0:8081 cgroup=drop
listen a tcp [::]:8082 cgroup=drop
listen host udp [::]:8083 cgroup=drop
listen host tcp 0.0.0.0:8084 cgroup=plain
listen a udp [::]:8085 cgroup=plain`, flows: []string{"lan to host:8081", "host to 127.0.0.1:8081", "b6 to a6:8082",
		"a to host:8083/udp", "lan to host:8084", "b to a:8085/udp"},
		judged: map[string]truth.Judgement{"lan to host:8081": truth.Unknown, "host to 127.0.0.1:8081": truth.Unknown,
			"b6 to a6:8082": truth.Unknown, "a to host:8083/udp": truth.Unknown, "lan to host:8084": truth.Right,
			"b to a:8085/udp": truth.Right}},
	{name: "an address of the host and of a sandbox", script: `ip addr add 10.77.0.2/32 dev lo
ip addr add fd77::2/128 dev lo`, flows: []string{"b to 10.77.0.2:80", "lan to 10.77.0.2:80", "host to 10.77.0.2:80",
		"c to 10.77.0.2:80", "a to b:80", "b6 to fd77::2:80", "lan6 to fd77::2:80"},
		judged: map[string]truth.Judgement{"b to 10.77.0.2:80": truth.Unknown, "lan to 10.77.0.2:80": truth.Right,
			"host to 10.77.0.2:80": truth.Right, "c to 10.77.0.2:80": truth.Right, "lan6 to fd77::2:80": truth.Right}},
	{name: "the gateway's address in a sandbox", script: `a ip addr add 10.77.0.1/32 dev eth0`,
		flows: []string{"b to host:80", "b to c:80", "c to b:80", "b6 to host6:80"},
		judged: map[string]truth.Judgement{"b to host:80": truth.Unknown, "b to c:80": truth.Unknown,
			"b6 to host6:80": truth.Right}},
	{name: "redirect on a link without an address", script: `ip addr del 10.77.0.1/24 dev br0
ip addr add 10.77.0.1/32 dev lo
ip route add 10.77.0.0/24 dev br0
sysctl -qw net.ipv4.conf.br0.route_localnet=1
nft -f - <<E
table ip n { chain pre { type nat hook prerouting priority -100; meta l4proto { tcp, udp } th dport 8080 redirect to :80; } }
E
iptables-nft -t nat -A PREROUTING -p tcp --dport 8081 -j REDIRECT --to-ports 80`,
		flows: append(both("a to host:8080", "a to host:80", "c to host:8080", "lan to host:8080"), "a to host:8081"),
		judged: all(truth.Right, "a to host:8080", "a to host:8080/udp", "a to host:80", "c to host:8080",
			"lan to host:8080", "lan to host:8080/udp", "a to host:8081")},
	{name: "masquerading ignores the source that a route prefers", script: `ip route replace 10.78.0.0/30 dev vc src 198.18.0.1
nft -f - <<E
table ip n { chain post { type nat hook postrouting priority 100; ip saddr 10.77.0.0/24 oifname "vc" masquerade; } }
E
c nft -f - <<E
table ip t { chain in { type filter hook input priority 0; ip saddr 10.78.0.1 drop; } }
E`, flows: both("a to c:80", "host to c:80"), judged: all(truth.Right, "a to c:80", "a to c:80/udp", "host to c:80")},
	{name: "source NAT of the port alone", script: `nft -f - <<E
table ip n { chain post { type nat hook postrouting priority 100; ip protocol tcp snat to :2000-3000; } }
E
c ip route add blackhole 10.77.0.2/32`, flows: []string{"a to c:80", "b to c:80"},
		judged: all(truth.Right, "a to c:80", "b to c:80")},
	{name: "source NAT at input", script: `nft -f - <<E
table ip n { chain in { type nat hook input priority 100; ip saddr 10.77.0.2 snat to 10.99.0.1; } }
E`, flows: both("a to host:80", "b to host:80"), judged: map[string]truth.Judgement{"a to host:80": truth.Unknown,
		"a to host:80/udp": truth.Unknown, "b to host:80": truth.Right}},
	{name: "proxy ARP of a bridge", script: `sysctl -qw net.ipv4.conf.br0.proxy_arp=1
a ip route add 10.78.0.0/24 dev eth0`, flows: append(both("a to c:80"), "a to 10.77.0.99:80"),
		judged: all(truth.Right, "a to c:80", "a to c:80/udp", "a to 10.77.0.99:80")},
	{name: "addresses for which a link answers", script: `ip neigh add proxy 10.77.0.2 dev vc
ip -6 neigh add proxy fd77::2 dev vc
sysctl -qw net.ipv6.conf.vc.proxy_ndp=1
c ip route add 10.77.0.0/24 dev eth0
c ip -6 route add fd77::/64 dev eth0`, flows: []string{"c to a:80", "c to b:80", "c6 to a6:80", "c6 to b6:80"},
		judged: all(truth.Right, "c to a:80", "c to b:80", "c6 to a6:80", "c6 to b6:80")},
	{name: "NAT to ports that are shifted",
		script: `iptables-nft -t nat -A PREROUTING -p tcp --dport 8000:8020 -j DNAT --to-destination 10.77.0.2:70-90/8000`,
		flows:  []string{"lan to host:8010", "lan to host:80"},
		judged: map[string]truth.Judgement{"lan to host:8010": truth.Unknown, "lan to host:80": truth.Right}},
	{name: "rules for links that do not exist", script: `ip link add gone type bridge
nft -f - <<E
table ip t { chain c { oif "gone" drop; }
chain in { type filter hook input priority 0; ip saddr 10.77.0.2 jump c; ip saddr 10.77.0.3 oifgroup != 7 drop; } }
E
ip link del gone`, flows: []string{"a to host:80", "b to host:80"}, judged: all(truth.Right, "a to host:80",
		"b to host:80")},
	{name: "routes back over loopback", script: `nft -f - <<E
table inet t { chain pre { type filter hook prerouting priority 0; fib saddr . iif oif missing drop; } }
E`, flows: []string{"host to 127.0.0.1:80", "host to 198.18.0.1:80", "host6 to ::1:80", "a to host:80"},
		judged: all(truth.Right, "host to 127.0.0.1:80", "host to 198.18.0.1:80", "host6 to ::1:80")},
	{name: "a local route to a subnet", script: `ip route add local 10.99.0.0/24 dev lo
iptables-nft -t nat -A PREROUTING -p tcp --dport 8080 -m addrtype --dst-type LOCAL -j DNAT --to-destination 10.78.0.2:80
nft -f - <<E
table ip t { chain pre { type filter hook prerouting priority 0; ip saddr 10.78.0.2 fib daddr type local drop; } }
E`, flows: []string{"a to 10.99.0.5:80", "a to 10.99.0.5:8080", "c to 10.99.0.5:80"},
		judged: all(truth.Right, "a to 10.99.0.5:80", "a to 10.99.0.5:8080", "c to 10.99.0.5:80")},
	{name: "a machine of the LAN at the bridge of a sandbox", script: `sysctl -qw net.bridge.bridge-nf-call-iptables=0
ip addr del 198.18.0.1/24 dev eth0
ip addr add 198.18.0.1/24 dev br0
ip link set eth0 master br0
a ip addr add 198.18.0.2/24 dev eth0
b ip addr add 198.18.0.3/24 dev eth0
iptables-nft -P FORWARD DROP
nft -f - <<E
table bridge t { chain f { type filter hook forward priority 0; iifname "eth0" ip daddr 198.18.0.3 drop; } }
E`, flows: both("lan to 198.18.0.2:80", "lan to 198.18.0.3:80", "lan to a:80", "lan to host:80"),
		judged: all(truth.Right, "lan to 198.18.0.2:80", "lan to 198.18.0.2:80/udp", "lan to 198.18.0.3:80",
			"lan to a:80", "lan to host:80")},
	{name: "a machine of the LAN and a macvlan", script: `ip link add mv0 link eth0 netns "$c" type macvlan mode bridge
c ip addr add 198.18.0.20/24 dev mv0
c ip link set mv0 up
iptables-nft -P FORWARD DROP`, flows: both("lan to 198.18.0.20:80", "lan to host:80"),
		judged: all(truth.Right, "lan to 198.18.0.20:80", "lan to 198.18.0.20:80/udp", "lan to host:80")},
	{name: "an answer with the mark of the request", script: `sysctl -qw net.ipv4.tcp_fwmark_accept=1
ip rule add fwmark 5 table 100
ip route add blackhole default table 100
nft -f - <<E
table ip t { chain pre { type filter hook prerouting priority 0; ip saddr 10.77.0.2 meta mark set 5; } }
E`, flows: both("a to host:80", "b to host:80", "a to host:81"), judged: all(truth.Right, "a to host:80",
		"a to host:80/udp", "b to host:80", "a to host:81")},
	{name: "an IPsec policy", script: `ip xfrm policy add src 10.77.0.2/32 dst 10.78.0.2/32 dir fwd action block`,
		flows: both("a to c:80", "b to c:80"), judged: map[string]truth.Judgement{"a to c:80": truth.Unknown,
			"a to c:80/udp": truth.Unknown, "b to c:80": truth.Right}},
	{name: "a link with a dot in its name", script: `ip link set vc down
ip link set vc name v.1
ip link set v.1 up
sysctl -qw net/ipv4/conf/v.1/arp_ignore=8`, flows: []string{"c to host:80", "a to host:80"},
		judged: all(truth.Right, "c to host:80", "a to host:80")},
	{name: "texts of legacy iptables", script: `iptables-legacy -A INPUT -s 10.77.0.2 -m comment --comment 'a " b' -j DROP
a ip6tables-legacy -A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 1/4 -j DROP`,
		flows: []string{"a to host:80", "b to host:80", "a6 to host6:81/udp", "b6 to host6:81/udp"},
		judged: map[string]truth.Judgement{"a to host:80": truth.Right, "b to host:80": truth.Right,
			"a6 to host6:81/udp": truth.Unknown, "b6 to host6:81/udp": truth.Right}},
	{name: "a limit that a map chooses", script: `nft -f - <<E
table inet t { limit lim { rate over 1/hour burst 5 packets; }
chain in { type filter hook input priority 0; ip saddr 10.77.0.2 limit name tcp dport map { 80 : "lim" } drop; } }
E`, flows: []string{"a to host:80", "b to host:80"}, judged: map[string]truth.Judgement{"a to host:80": truth.Unknown,
		"b to host:80": truth.Right}},
	{name: "the sender of a frame that NAT sends back to its bridge", script: natToBridge + `
nft -f - <<E
table bridge t { chain f { type filter hook forward priority 0; ether saddr $(mac a ip -o link show eth0) ip daddr 10.77.0.3 tcp dport 80 drop; } }
E`, flows: both("a to host:8080", "c to host:8080"), judged: all(truth.Right, "a to host:8080", "a to host:8080/udp",
		"c to host:8080")},
}
