package truth

import (
	"fmt"
	"strings"
)

// frames adds rules of the families bridge and arp.
func (g *generator) frames() {
	if g.IntN(3) == 0 {
		hook := one(g, []string{"input", "output"})
		g.tables++
		name := fmt.Sprintf("arp t%d", g.tables)
		prefix := g.in()
		g.add(prefix+"nft add table "+name, fmt.Sprintf("%snft 'add chain %s c { type filter hook %s priority 0; }'",
			prefix,
			name, hook), prefix+"nft 'add rule "+name+" c "+one(g, []string{"arp saddr ip <v4>", "arp daddr ip <v4>",
			"arp operation request", "arp operation reply", "iifname <link>"})+" "+one(g, []string{"drop",
			"accept"})+"'")
		return
	}
	hook := one(g, []string{"prerouting", "input", "forward", "output", "postrouting"})
	g.table("", "bridge", hook, "type filter hook "+hook+" priority 0", "accept")
	name := fmt.Sprintf("bridge t%d", g.tables)
	g.add(fmt.Sprintf("nft 'add rule %s c %s %s'", name, one(g, []string{"iifname <frame>", "oifname <frame>",
		"ether type arp",
		"ether type ip", "ether type ip6 ip6 daddr <v6>", "iifname <frame> ip daddr <v4>",
		"ether type ip ip saddr <v4>",
		"meta protocol ip tcp dport <port>", "ip saddr <v4> ip daddr <v4>"}), one(g, []string{"drop", "drop",
		"accept"})))
}

// linkHooks adds rules at links.
func (g *generator) linkHooks() {
	hook := one(g, []string{"ingress", "ingress", "egress"})
	family, device := "netdev", one(g, []string{"eth0", "eth0", "vc", "pa", "br0"})
	if hook == "ingress" && g.IntN(3) == 0 {
		family = "inet"
	}
	prefix := g.in()
	if prefix != "" {
		device = "eth0"
	}
	g.table(prefix, family, hook, fmt.Sprintf("type filter hook %s device %s priority 0", hook, device), "accept")
}

// iptablesMatches are those that `fairlead explain` follows, oddMatches the others.
var (
	iptablesMatches = []string{"-p tcp --dport <port>", "-p udp --dport <port>",
		"-p tcp -m multiport --dports 22,<port>",
		"-s <v4>", "-d <v4>", "! -s <v4>", "-s <net4>", "! -d <net4>", "-i <link>", "! -i <link>", "-i v+",
		"-m conntrack --ctstate NEW", "-m conntrack --ctstate RELATED,ESTABLISHED",
		"-m conntrack --ctstate NEW,DNAT", "-m conntrack --ctstate RELATED,ESTABLISHED,DNAT",
		"-m conntrack ! --ctstate DNAT",
		"-m conntrack --ctstate INVALID", "-m conntrack --ctstate UNTRACKED", "-m conntrack --ctstate SNAT,DNAT",
		"-m conntrack ! --ctstate NEW,SNAT", "-m state --state NEW", "-m mark --mark <mark>",
		"-m mark ! --mark <mark>/0xf",
		"-m connmark --mark <mark>", "-m addrtype --dst-type LOCAL", "-m addrtype ! --dst-type LOCAL",
		"-p tcp --syn", "-p tcp ! --syn", "-p tcp --tcp-flags SYN,ACK SYN", "-p tcp --sport 1024:",
		"-m comment --comment x",
		"-p tcp -m tcp --dport <range>", "-p udp --sport 1:1023", "-p tcp -s <v4> -d <v4> --dport <port>"}
	oddMatches = []string{"-m ttl --ttl-lt 64", "-m ttl --ttl-eq 64", "-m limit --limit 1/hour --limit-burst 1",
		"-m length --length 0:100", "-m owner --uid-owner 0", "-m owner --socket-exists", "-m conntrack --ctdir REPLY",
		"-m conntrack --ctorigdst <v4>", "-m conntrack --ctorigdstport <port>", "-m conntrack --ctreplsrc <v4>",
		"-m conntrack --ctstatus SEEN_REPLY", "-m conntrack --ctproto tcp", "-m conntrack --ctexpire 1:100",
		"-m recent --set --name r", "-m recent --rcheck --name r", "-m statistic --mode random --probability 0.5",
		"-m statistic --mode nth --every 2", "-m u32 --u32 6&0xFF=6", "-m physdev --physdev-is-bridged",
		"-m physdev --physdev-in pa", "-m pkttype --pkt-type host", "-m iprange --src-range 10.77.0.2-10.77.0.9", "-f",
		"-m connlimit --connlimit-above 100", "-m tos --tos 0", "-m dscp --dscp 0", "-m cpu --cpu 0",
		"-m string --algo bm --string x", "-m time --datestart 2020-01-01", "-m quota --quota 100000",
		"-m realm --realm 1",
		"-m rpfilter --invert", "-m socket", "-m connbytes --connbytes 1 --connbytes-dir both --connbytes-mode packets",
		"-m addrtype --src-type UNICAST", "-m addrtype --dst-type LOCAL --limit-iface-in",
		"-m bpf --bytecode 1,6\\ 0\\ 0\\ 1",
		"-m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 1 --hashlimit-mode srcip --hashlimit-name h",
		"-p tcp -m tcpmss --mss 1:9000", "-p tcp -m tcp --tcp-option 2", "-m devgroup --src-group 0",
		"-m policy --dir in --pol none"}
)

// iptablesRule returns the matches and the target of a rule.
func (g *generator) iptablesRule(target string) string {
	var words []string
	for range 1 + g.IntN(2) {
		from := iptablesMatches
		if !g.documented && g.IntN(3) == 0 {
			from = oddMatches
		}
		words = append(words, one(g, from))
	}
	return strings.Join(words, " ") + " -j " + target
}

// iptables adds rules with one of the two variants of iptables.
func (g *generator) iptables() {
	program := g.in() + one(g, []string{"iptables-nft", "iptables-nft", "iptables-legacy"})
	rule := func(table, chain, target string) {
		g.add(program + " -t " + table + " -A " + chain + " " + g.iptablesRule(target))
	}
	chains := []string{"INPUT", "FORWARD", "OUTPUT", "INPUT", "FORWARD"}
	switch g.IntN(5) {
	case 0: // a firewall that drops
		chain := one(g, chains)
		g.add(program+" -P "+chain+" DROP", program+" -A "+chain+" -m conntrack --ctstate "+
			one(g, []string{"RELATED,ESTABLISHED", "ESTABLISHED,DNAT", "ESTABLISHED"})+" -j ACCEPT")
		rule("filter", chain, "ACCEPT")
		rule("filter", chain, "ACCEPT")
	case 1:
		g.add(program + " -N X1")
		chain := one(g, chains)
		rule("filter", chain, "X1")
		rule("filter", "X1", one(g, []string{"DROP", "RETURN", "ACCEPT"}))
		rule("filter", "X1", one(g, []string{"DROP", "REJECT"}))
		rule("filter", chain, one(g, []string{"DROP", "LOG", "REJECT"}))
	case 2:
		g.ports = append(g.ports, "8080")
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			g.add(program + " -t nat -A " + chain + " -p " + one(g, []string{"tcp", "tcp", "udp"}) + " --dport 8080 " +
				one(g, []string{"", "-d <v4>", "-m addrtype --dst-type LOCAL"}) + " -j " + one(g,
				[]string{"DNAT --to-destination <box4>:80",
					"DNAT --to-destination <box4>:80", "REDIRECT --to-ports 80",
					"DNAT --to-destination 10.77.0.2-10.77.0.3:80",
					"DNAT --to-destination <box4>:8080-8081", "DNAT --to-destination 10.77.0.99:80"}))
		}
		g.add(program + " -t nat -A POSTROUTING " + one(g, []string{"-o <link>", "-d <box4>", "-s <net4>",
			"-m conntrack --ctstate DNAT"}) + " -j MASQUERADE")
	case 3:
		table := "raw"
		g.add(program + " -t " + table + " -A " + one(g, []string{"PREROUTING", "OUTPUT"}) + " " + one(g,
			iptablesMatches) + " -j " +
			one(g, []string{"NOTRACK", "CT --notrack"}))
		rule("filter", one(g, chains), one(g, []string{"DROP", "ACCEPT"}))
		g.add(program + " -A " + one(g, chains) + " -m conntrack --ctstate " + one(g, []string{"UNTRACKED", "INVALID",
			"NEW"}) + " -j DROP")
	case 4:
		rule("mangle", one(g, []string{"PREROUTING", "FORWARD", "OUTPUT"}), one(g, []string{"MARK --set-mark <mark>",
			"MARK --set-xmark <mark>/0xff", "CONNMARK --set-mark <mark>", "CONNMARK --save-mark"}))
		g.add(program + " -A " + one(g, chains) + " -m " + one(g, []string{"mark", "connmark"}) +
			" --mark <mark> -j DROP")
	}
}

// routes adds routes and routing rules.
func (g *generator) routes() {
	prefix := one(g, []string{"", "a ", "b ", "c "})
	g.add(prefix + one(g, []string{"ip route add blackhole <v4>/32", "ip route add unreachable <v4>/32",
		"ip route add prohibit <v4>/32", "ip -6 route add unreachable <v6>/128", "ip -6 route add blackhole <v6>/128",
		"ip route del default", "ip route add <v4>/32 via 10.77.0.3", "ip route add <v4>/32 dev eth0",
		"ip route add throw <v4>/32", "ip rule add from <v4> blackhole", "ip rule add to <v4> prohibit",
		"ip rule add iif <link> unreachable", "ip rule add from <net4> table 100", "ip addr add <v4>/32 dev lo",
		"ip -6 route del default"}))
	if g.IntN(2) == 0 {
		g.add(prefix + "ip route add " + one(g, []string{"default via 10.77.0.1", "<v4> dev eth0",
			"blackhole default"}) + " table 100")
	}
}

// oddRoutes adds multipath routes, and rules that compare more than addresses and marks.
func (g *generator) oddRoutes() {
	g.add(one(g, []string{"ip route add 10.79.0.0/24 nexthop via 10.77.0.2 nexthop via 10.78.0.2",
		"ip route replace 10.77.0.2/32 nexthop via 10.77.0.3 dev br0 nexthop dev br0",
		"a ip route replace default nexthop via 10.77.0.1 nexthop via 10.77.0.3",
		"ip rule add ipproto tcp dport <port> table 100", "ip rule add tos 0x10 blackhole",
		"ip rule add uidrange 0-0 table 100", "ip rule add ipproto udp prohibit"}),
		"ip route add "+one(g, []string{"blackhole default", "<v4> via 10.78.0.2"})+" table 100")
}

// bridges changes the bridge and its ports.
func (g *generator) bridges() {
	g.add(one(g, []string{"bridge link set dev pa isolated on; bridge link set dev pb isolated on",
		"bridge link set dev <frame> isolated on", "bridge link set dev <frame> hairpin on",
		"sysctl -qw net.bridge.bridge-nf-call-iptables=1", "sysctl -qw net.bridge.bridge-nf-call-ip6tables=1",
		"ip link set br0 type bridge nf_call_iptables 1", "ip link set br0 type bridge nf_call_ip6tables 1",
		"bridge link set dev <frame> state 0", "bridge link set dev <frame> state 4",
		"bridge fdb add 02:00:00:00:00:99 dev <frame> master static"}))
	if g.IntN(2) == 0 {
		g.iptables()
	}
}

// oddBridges changes what is documented as not followed.
func (g *generator) oddBridges() {
	g.add(one(g, []string{"ip link set br0 type bridge vlan_filtering 1", "bridge link set dev <frame> learning off",
		"bridge link set dev <frame> flood off", "bridge link set dev <frame> neigh_suppress on",
		"bridge link set dev <frame> locked on", "bridge link set dev <frame> bcast_flood off",
		"bridge fdb replace \"$(mac a ip -o link show eth0)\" dev pb master static",
		"sysctl -qw net.bridge.bridge-nf-call-arptables=1; arptables-nft -A FORWARD -j DROP"}))
}

// settings sets sysctls.
func (g *generator) settings() {
	link := one(g, []string{"eth0", "br0", "vc", "all"})
	prefix := g.in()
	if prefix != "" {
		link = one(g, []string{"eth0", "all"})
	}
	g.add(prefix + "sysctl -qw net.ipv4.conf." + link + "." + one(g, []string{"rp_filter=1", "rp_filter=1",
		"rp_filter=2",
		"forwarding=0", "arp_ignore=1", "arp_ignore=2", "arp_ignore=8", "accept_local=1", "route_localnet=1",
		"proxy_arp=1",
		"arp_ignore=3"}))
	if g.IntN(4) == 0 {
		g.add(one(g, []string{"sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv6.conf.all.forwarding=0",
			"sysctl -qw net.ipv6.conf.<link>.forwarding=0", "a sysctl -qw net.ipv4.ip_forward=1"}))
	}
	if g.IntN(3) == 0 {
		g.secondLink()
	}
}

// secondLink gives the sandbox a a second link to the host.
func (g *generator) secondLink() {
	g.add("ip link add vd type veth peer name eth1 netns $a && ip addr add 10.79.0.1/24 dev vd && ip link set vd up",
		"a ip addr add 10.79.0.2/24 dev eth1; a ip link set eth1 up",
		one(g, []string{"a ip route replace default via 10.79.0.1", "a ip route add 10.78.0.0/24 via 10.79.0.1",
			"a ip route add 198.18.0.0/24 via 10.79.0.1", "ip route add 10.77.0.2/32 dev vd"}))
	if g.IntN(2) == 0 {
		g.add(one(g, []string{"a sysctl -qw net.ipv4.conf.all.rp_filter=1", "sysctl -qw net.ipv4.conf.vd.rp_filter=1",
			"sysctl -qw net.ipv4.conf.all.rp_filter=1", "sysctl -qw net.ipv4.conf.all.rp_filter=2"}))
	}
}

// neighbours changes neighbour entries.
func (g *generator) neighbours() {
	g.add(one(g, []string{"a ip neigh replace 10.77.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"ip neigh replace <box4> lladdr 02:00:00:00:00:99 dev br0 nud permanent",
		"ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:99 dev vc nud permanent",
		"ip neigh replace 198.18.0.7 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"a ip neigh replace 10.77.0.3 lladdr \"$(mac b ip -o link show eth0)\" dev eth0 nud permanent",
		"a ip neigh replace fd77::1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
		"ip neigh replace 198.18.0.7 lladdr \"$(mac lan ip -o link show eth0)\" dev eth0 nud permanent",
		"c ip neigh replace 10.78.0.1 lladdr \"$(mac ip -o link show vc)\" dev eth0 nud permanent",
		"ip neigh replace 10.77.0.2 dev br0 nud failed",
		"ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:99 dev br0 nud stale",
		"a ip link set eth0 arp off", "c ip link set eth0 arp off"}))
}

// sockets adds sockets to places.
func (g *generator) sockets() {
	for range 1 + g.IntN(3) {
		port := one(g, []string{"8081", "8082", "8083", "8080"})
		g.ports = append(g.ports, port)
		link := one(g, []string{"br0", "eth0", "eth0", "lo"})
		place := one(g, []string{"host", "host", "a", "c"})
		if place != "host" {
			link = one(g, []string{"eth0", "lo"})
		}
		at := one(g, []string{"0.0.0.0:", "[::]:", "0.0.0.0:", "127.0.0.1:", "198.18.0.1:", "10.77.0.1:",
			"[fd18::1]:", "10.77.0.2:"})
		option := one(g, []string{"", "", " dev=" + link, " dev=" + link, " full", " minttl=255", " v6only", " reuse",
			" dev=" + link + " reuse"})
		proto := one(g, []string{"tcp", "tcp", "udp"})
		if proto == "udp" && option == " full" {
			option = ""
		}
		g.add("listen " + place + " " + proto + " " + at + port + option)
		if g.IntN(3) == 0 {
			g.add("listen " + place + " " + proto + " 0.0.0.0:" + port + one(g, []string{" dev=" + link, " reuse", ""}))
		}
	}
}

// linkChanges changes links and their addresses.
func (g *generator) linkChanges() {
	g.add(one(g, []string{"<place> ip link set eth0 down", "a ip link set lo down", "ip link set pa nomaster",
		"ip link set vc down",
		"ip addr add 10.77.0.9/24 dev br0", "a ip addr add 10.77.0.8/24 dev eth0", "ip addr add <v4>/32 dev lo",
		"ip addr del 10.77.0.1/24 dev br0; ip addr add 10.77.0.1/24 dev br0", "a ip addr flush dev eth0",
		"ip link set pb down",
		"ip link add mv0 link eth0 type macvlan mode bridge", "b ip addr add 10.77.0.2/24 dev eth0",
		"ip link set br0 down; ip link set br0 up", "ip addr add 198.18.0.3/24 dev eth0"}))
}
