package foreign

// matches are those of iptables; the programs refuse some in some tables.
var matches = []string{"-p tcp --dport %d", "-p udp --sport 1:%d", "-p icmp --icmp-type 8",
	"-p tcp --tcp-flags SYN,RST SYN", "-p tcp -m tcp --tcp-option 5",
	"-s 192.0.2.%d", "! -d 192.0.2.0/24", "-i wire0", "! -o w+", "-f", "-m conntrack --ctorigdst 192.0.2.%d",
	"-m conntrack --ctdir REPLY",
	"-m conntrack --ctstate NEW,DNAT", "-m conntrack ! --ctstatus ASSURED", "-m conntrack --ctexpire 1:%d",
	"-m conntrack --ctreplsrcport %d -p tcp",
	"-m state --state RELATED", "-p tcp -m multiport --dports 1,%d,200:300", "-m mark --mark 0x%d/0xff",
	"-m connmark ! --mark %d",
	"-m comment --comment \"it's %d\"", "-m limit --limit 3/hour --limit-burst %d",
	"-m hashlimit --hashlimit-above 5/sec --hashlimit-mode srcip,dstport --hashlimit-name h%d",
	"-m recent --name r%d --set", "-m recent --rcheck --seconds %d --hitcount 2",
	"-m string --algo bm --string 'x%d'", "-m string --algo kmp --hex-string '|00ff|'",
	"-m u32 --u32 '6&0xFF=1'", "-m time --timestart 10:00 --weekdays Mon", "-m tos --tos 0x10", "-m dscp --dscp %d",
	"-m ttl --ttl-lt %d", "-m hl --hl-gt 5",
	"-m length --length 0:%d", "-m mac --mac-source 02:00:00:00:00:01", "-m owner --uid-owner %d",
	"-m owner --socket-exists", "-m physdev --physdev-is-bridged",
	"-m physdev --physdev-in wire0", "-m pkttype --pkt-type broadcast",
	"-m policy --dir in --pol ipsec --mode tunnel", "-m policy --dir out --pol none",
	"-m quota --quota %d", "-m realm --realm %d", "-m rpfilter --loose --invert", "-m socket --transparent",
	"-m statistic --mode random --probability 0.5",
	"-m statistic --mode nth --every %d", "-p tcp -m tcpmss --mss 1:%d",
	"-m addrtype --dst-type LOCAL --limit-iface-in", "-m addrtype ! --src-type UNICAST",
	"-m bpf --bytecode '1,6 0 0 1'", "-m cgroup --cgroup %d", "-m cgroup --path /",
	"-m connbytes --connbytes %d --connbytes-dir both --connbytes-mode packets",
	"-m connlimit --connlimit-above %d --connlimit-mask 24", "-m connlabel --label %d", "-m cpu --cpu 0",
	"-m devgroup --src-group %d", "-p dccp --dport %d",
	"-p tcp -m ecn --ecn-tcp-cwr", "-p esp -m esp --espspi %d", "-p ah -m ah --ahspi %d", "-m helper --helper ftp",
	"-m iprange --src-range 192.0.2.1-192.0.2.9",
	"-m osf --genre Linux", "-p sctp --chunk-types any INIT", "-m set --match-set none src",
	"-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed %d",
	"-p ipv6-icmp --icmpv6-type 134", "-m eui64", "-m frag --fragmore", "-m rt --rt-type 0",
	"-m ipv6header --header hop --soft", "-p mh --mh-type 1"}

// targets are those of iptables.
var targets = []string{"ACCEPT", "ACCEPT", "DROP", "RETURN", "REJECT", "REJECT --reject-with tcp-reset -p tcp",
	"LOG --log-prefix 'x %d ' --log-uid", "NFLOG --nflog-group %d",
	"MARK --set-xmark 0x%d/0xff", "MARK --or-mark %d", "CONNMARK --save-mark --mask 0xf0", "CONNMARK --restore-mark",
	"CT --notrack", "CT --zone %d", "CT --helper ftp",
	"DNAT --to-destination 192.0.2.%d", "DNAT --to-destination 192.0.2.1-192.0.2.9:80-90 --random -p tcp",
	"SNAT --to-source 192.0.2.%d --persistent",
	"MASQUERADE --random-fully", "MASQUERADE --to-ports 1-%d -p udp", "REDIRECT --to-ports %d -p tcp",
	"NETMAP --to 192.0.2.0/24", "TPROXY --on-port %d --tproxy-mark 1 -p tcp",
	"TCPMSS --clamp-mss-to-pmtu -p tcp --tcp-flags SYN,RST SYN", "TCPOPTSTRIP --strip-options mss -p tcp",
	"TEE --gateway 192.0.2.%d", "TOS --set-tos 0x10", "DSCP --set-dscp %d",
	"TTL --ttl-set %d", "HL --hl-dec 1", "CLASSIFY --set-class 1:%d", "CHECKSUM --checksum-fill -p udp",
	"AUDIT --type accept", "SYNPROXY --mss 1460 -p tcp", "TRACE",
	"RATEEST --rateest-name e --rateest-interval 250ms --rateest-ewmalog 0.5s",
	"NFQUEUE --queue-num %d --queue-bypass", "NFQUEUE --queue-balance 0:3 --queue-bypass",
	"IDLETIMER --timeout %d --label t",
	"HMARK --hmark-tuple src --hmark-mod %d --hmark-rnd 1", "ECN --ecn-tcp-remove -p tcp", "SECMARK --selctx x",
	"DOCKER-USER", "X1"}

var ipChains = map[string][]string{
	"filter": {"FORWARD", "FORWARD", "INPUT", "OUTPUT", "DOCKER-USER", "DOCKER-USER", "X1"},
	"nat":    {"PREROUTING", "POSTROUTING", "OUTPUT", "X1"},
	"mangle": {"PREROUTING", "FORWARD", "POSTROUTING", "X1"},
	"raw":    {"PREROUTING", "OUTPUT"},
}

// iptables returns commands that add rules with both variants of iptables, ebtables
// and arptables.
func (g *generator) iptables() Set {
	var s Set
	for range 1 + g.IntN(2) {
		program := one(g, []string{"iptables-nft", "iptables-nft", "ip6tables-nft", "iptables-legacy",
			"ip6tables-legacy"})
		table := one(g, []string{"filter", "filter", "filter", "nat", "mangle", "raw"})
		s = append(s, program+" -t "+table+" -N X1")
		if table == "filter" && g.IntN(2) == 0 {
			s = append(s, program+" -P FORWARD DROP", program+" -N DOCKER-USER", program+" -A FORWARD -j DOCKER-USER")
		}
		for range 2 + g.IntN(6) {
			rule := program + " -t " + table + " -" + one(g, []string{"A", "A", "I"}) + " " + one(g,
				ipChains[table]) + " "
			for range 1 + g.IntN(2) {
				rule += one(g, matches) + " "
			}
			s = append(s, g.fill(rule+"-j "+one(g, targets)))
		}
	}
	if g.IntN(4) == 0 {
		s = append(s, g.some(2, []string{"ebtables -A FORWARD -p ARP --arp-op Request -j DROP",
			"ebtables -A INPUT -s 02:00:00:00:00:01 -j CONTINUE",
			"ebtables -t nat -A PREROUTING -p IPv4 --ip-proto tcp --ip-dport %d -j mark --mark-set %d",
			"ebtables -A FORWARD --limit 5/s -j ACCEPT",
			"arptables -A INPUT --source-ip 192.0.2.%d -j DROP",
			"arptables -A OUTPUT -j mangle --mangle-ip-s 192.0.2.1"})...)
	}
	return s
}
