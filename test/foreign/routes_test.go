package foreign

// routes are routes, rules, next hops and neighbours; none is to the host's own
// networks, and none is a default route of the main table.
var routes = []string{"route add blackhole 203.0.113.%d", "route add unreachable 203.0.113.0/25",
	"route add prohibit 198.18.7.0/24", "route add throw 198.18.8.0/24 table %d",
	"-6 route add blackhole 2001:db8:bb::/48", "-6 route add unreachable 2001:db8:cc::/48 metric %d",
	"-6 route add prohibit default table %d", "route add 203.0.113.%d via 198.51.100.1 mtu 1400 advmss 1200",
	"route add 203.0.113.%d dev wire0 scope link src 198.51.100.2",
	"route add 203.0.113.%d via inet6 2001:db8:1::1 dev wire0",
	"route add 203.0.113.%d via 192.0.2.254 dev wire0 onlink",
	"route add 198.18.9.0/24 nexthop via 198.51.100.1 weight %d nexthop dev wire0 weight 2",
	"-6 route add 2001:db8:dd::/48 nexthop via 2001:db8:1::1 weight 3 nexthop dev wire0",
	"route add default via 198.51.100.1 table %d", "route add local 192.0.2.%d dev lo",
	"route add local 203.0.113.0/24 dev lo table %d",
	"-6 route add local 2001:db8:ee::/64 dev lo", "route add broadcast 203.0.113.255 dev wire0",
	"route add multicast 239.1.2.0/24 dev wire0", "route add 203.0.113.%d tos 0x10 via 198.51.100.1",
	"route add 203.0.113.%d dev wire0 metric %d proto bgp", "route add 203.0.113.%d dev wire0 realm %d",
	"-6 route add 2001:db8:ff::/64 dev wire0 pref low expires 90000",
	"-6 route add 2001:db8:fe::/64 from 2001:db8:1::/64 dev wire0",
	"route add 203.0.113.%d encap ip id %d dst 192.0.2.1 dev wire0",
	"route add 203.0.113.%d encap mpls 100 via 198.51.100.1",
	"-6 route add 2001:db8:fd::/64 encap seg6 mode encap segs 2001:db8::1 dev wire0",
	"-6 route add 2001:db8:fc::%d encap ioam6 trace prealloc type 0x800000 ns 1 size 4 dev wire0",
	"nexthop add id %d blackhole", "nexthop add id 300 via 198.51.100.1 dev wire0", "nexthop add id 301 dev wire0",
	"nexthop add id 302 group 300/301,7", "route add 203.0.113.%d nhid 302", "route add 203.0.113.%d nhid 300",
	"-6 nexthop add id 303 via 2001:db8:1::1 dev wire0", "-6 route add 2001:db8:fb::/64 nhid 303",
	"rule add fwmark 0x%d/0xff table %d", "rule add from 203.0.113.%d table %d pref 100",
	"rule add iif wire0 to 203.0.113.0/24 blackhole", "rule add uidrange %d-500 table %d",
	"rule add ipproto tcp dport %d table %d", "rule add from 203.0.113.0/24 goto 32766",
	"rule add not from 192.0.2.0/24 table 77 suppress_prefixlength 0", "rule add l3mdev",
	"rule add to 203.0.113.0/24 nop",
	"-6 rule add fwmark %d table %d", "-6 rule add from 2001:db8:1::/64 sport %d-300 prohibit",
	"-6 rule add oif wire0 table %d tos 4", "rule add from 203.0.113.%d realms %d/2 table 5",
	"neigh add 198.51.100.%d lladdr 02:00:00:00:00:01 dev wire0", "neigh add 198.51.100.7 nud noarp dev wire0",
	"neigh add proxy 198.51.100.8 dev wire0",
	"-6 neigh add proxy 2001:db8:1::%d dev wire0",
	"neigh add 198.51.100.9 lladdr 02:00:00:00:00:09 dev wire0 extern_learn",
	"neigh add 198.51.100.10 dev wire0 managed", "addrlabel add prefix 2001:db8:aa::/48 label %d",
	"maddr add 33:33:00:00:00:%d dev wire0", "token set ::%d dev wire0",
	"ntable change name arp_cache dev wire0 locktime %d",
	"xfrm policy add src 203.0.113.0/24 dst 192.0.2.0/24 dir out tmpl proto esp reqid %d mode tunnel",
	"xfrm policy add dir in", "tunnel add tunl%d mode ipip remote 203.0.113.1", "mroute show", "netconf show",
	"-6 route add ::/1 dev wire0 table %d", "route add 0.0.0.0/1 via 198.51.100.1 table %d", "vrf show",
	"-6 route append 2001:db8:fa::/64 via 2001:db8:1::9 dev wire0",
	"link set dev wire0 group %d", "link set dev wire0 alias 'up link %d'", "addr add 203.0.113.%d/32 dev wire0",
	"addr add 203.0.113.%d/24 dev wire0 scope link", "-6 addr add 2001:db8:f9::%d/128 dev wire0 nodad",
	"addr add 203.0.113.%d/32 dev lo", "link set dev wire0 promisc on", "link set dev lo mtu 1500"}

// routes returns commands that add routes, rules and neighbours, and entries of bridges.
func (g *generator) routes() Set {
	var s Set
	for _, command := range g.some(3+g.IntN(6), routes) {
		s = append(s, "ip "+command)
	}
	if g.IntN(3) == 0 {
		s = append(s, g.some(1, []string{"bridge fdb add 02:00:00:00:00:%d dev wire0",
			"bridge fdb add 01:00:5e:00:00:01 dev wire0", "bridge vlan add dev br0 vid %d self",
			"bridge mdb add dev br0 port br0 grp 239.1.1.1 permanent",
			"bridge fdb add 02:00:00:00:00:02 dev br0 local", "bridge link set dev br0 flood off"})...)
	}
	return s
}

// hostSettings are settings of the host that its administrator may choose, and with
// which everything works that a user asks for.
var hostSettings = []string{"net.ipv4.conf.all.rp_filter=%r", "net.ipv4.conf.wire0.rp_filter=%r",
	"net.ipv4.conf.default.rp_filter=1", "net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_filter=1",
	"net.ipv4.conf.wire0.accept_local=1", "net.ipv4.conf.wire0.forwarding=1",
	"net.ipv6.conf.wire0.forwarding=1", "net.ipv4.ip_forward=0", "net.ipv4.ip_forward=1",
	"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.all.log_martians=1",
	"net.ipv4.conf.all.src_valid_mark=1", "net.ipv4.conf.all.promote_secondaries=1",
	"net.ipv4.conf.default.disable_xfrm=1", "net.ipv4.conf.all.proxy_arp=1", "net.ipv4.conf.wire0.route_localnet=1",
	"net.ipv6.conf.default.accept_ra=0", "net.ipv6.conf.default.accept_ra=2", "net.ipv6.conf.all.accept_ra=2",
	"net.ipv6.conf.default.autoconf=0", "net.ipv6.conf.default.disable_ipv6=1",
	"net.ipv6.conf.default.addr_gen_mode=1", "net.ipv6.conf.default.dad_transmits=0",
	"net.ipv6.conf.default.forwarding=0", "net.ipv6.conf.all.proxy_ndp=1", "net.ipv6.bindv6only=1",
	"net.ipv4.ip_nonlocal_bind=1", "net.ipv4.ip_local_port_range='1024 65535'",
	"net.ipv4.ip_unprivileged_port_start=0",
	"net.ipv4.ip_early_demux=0", "net.ipv4.fib_multipath_hash_policy=%r", "net.ipv4.tcp_l3mdev_accept=1",
	"net.ipv4.icmp_echo_ignore_all=1", "net.ipv4.tcp_syncookies=2", "net.ipv4.tcp_timestamps=0",
	"net.ipv4.tcp_fwmark_accept=1", "net.netfilter.nf_conntrack_acct=1",
	"net.netfilter.nf_conntrack_tcp_be_liberal=1",
	"net.netfilter.nf_conntrack_timestamp=1", "net.netfilter.nf_conntrack_events=1",
	"net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=1",
	"net.bridge.bridge-nf-filter-vlan-tagged=1", "net.core.xfrm_acq_expires=10", "net.ipv4.ip_default_ttl=%d",
	"net.ipv4.min_adv_mss=%d", "net.ipv6.conf.wire0.accept_redirects=0",
	"net.ipv6.conf.wire0.accept_ra_defrtr=1", "net.ipv6.conf.wire0.use_tempaddr=0", "net.ipv6.route.max_size=4096",
	"net.ipv6.flowlabel_consistency=0", "net.ipv6.ip_nonlocal_bind=1", "net.ipv4.fwmark_reflect=1",
	"net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.wire0.accept_ra=2"}
