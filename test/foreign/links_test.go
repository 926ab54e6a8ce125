package foreign

// names are names of links that the kernel accepts, also those that mean something to a
// shell, to iptables or to sysctl(8).
var names = []string{"br0", "eth1", "eth0.%d", "a.b.c", "x+", "w*", "q'q", `d"d`, "$(id)", "-x", "%%s", "fl-x",
	"fv-other", "fx-y", "\u00fc\u00e4", "docker0", "virbr0", "tun%d", "fairlead", "wire"}

// makers make a link with the name that follows.
var makers = []string{"type bridge", "type bridge vlan_filtering 1 stp_state 1",
	"type bridge mcast_snooping 0 forward_delay 0", "type veth peer name p%d",
	"type veth peer name p%d netns $$", "link wire0 type macvlan mode bridge", "link wire0 type macvlan mode private",
	"link wire0 type macvtap mode vepa", "link wire0 type ipvlan mode l3",
	"link wire0 type vlan id %d", "type vxlan id %d dstport 4789 local 198.51.100.2 remote 198.51.100.1",
	"type vxlan id %d dstport 0 external", "type dummy", "type ifb", "type vrf table %d",
	"type bond mode active-backup", "type team", "type geneve id %d remote 198.51.100.1",
	"type gre local 198.51.100.2 remote 198.51.100.1", "type gretap local 198.51.100.2 remote 198.51.100.1",
	"type ipip local 198.51.100.2 remote 198.51.100.1",
	"type sit local 198.51.100.2 remote 198.51.100.1", "type ip6tnl local 2001:db8:1::2 remote 2001:db8:1::1",
	"type vti key %d local 198.51.100.2", "type xfrm dev wire0 if_id %d", "type wireguard", "type nlmon",
	"type bareudp dstport %d ethertype ip", "type macsec port 11", "type netkit", "type nlmon", "type vcan",
	"type hsr slave1 wire0 slave2 lo", "numtxqueues 4 numrxqueues 4 type veth"}

// changes change a link.
var changes = []string{"up", "up", "down", "mtu %d", "mtu 576", "mtu 1280", "group %d", "alias 'fairlead'",
	"alias 'an alias: %d'", "address 02:00:00:00:00:%d", "master br0", "arp off", "multicast off", "promisc on",
	"txqueuelen %d",
	"allmulticast on", "addrgenmode none", "addrgenmode eui64", "type bridge_slave hairpin on",
	"type bridge_slave isolated on learning off", "gso_max_size 10000", "protodown on"}

// disciplines are queueing disciplines and filters of tc.
var disciplines = []string{"qdisc add dev wire0 root fq_codel", "qdisc add dev wire0 root handle 1: htb default 10",
	"class add dev wire0 parent 1: classid 1:10 htb rate 1gbit",
	"qdisc add dev wire0 root tbf rate 1gbit burst 1m latency 50ms",
	"qdisc add dev wire0 clsact", "qdisc add dev wire0 ingress", "filter add dev wire0 ingress matchall action pass",
	"filter add dev wire0 egress protocol ip u32 match ip dst 192.0.2.%d/32 action ok",
	"filter add dev wire0 ingress protocol ip flower dst_ip 192.0.2.%d action drop",
	"filter add dev wire0 ingress protocol all prio %d basic action mirred egress redirect dev lo",
	"qdisc add dev wire0 root prio", "qdisc add dev wire0 root sfq perturb 10",
	"qdisc add dev wire0 root netem delay 1ms", "filter add dev wire0 ingress protocol ipv6 flower action gact pass",
	"qdisc add dev lo clsact", "filter add dev lo ingress protocol ip bpf bytecode '1,6 0 0 0,'",
	"qdisc add dev lo root noqueue"}

// links returns commands that make links and change them.
func (g *generator) links() Set {
	s := Set{}
	for range 1 + g.IntN(4) {
		name := quote(g.fill(one(g, names)))
		s = append(s, g.fill("ip link add name "+name+" "+one(g, makers)))
		for range g.IntN(4) {
			s = append(s, g.fill("ip link set dev "+name+" "+one(g, changes)))
		}
		if g.IntN(5) == 0 {
			s = append(s, g.fill("ip link property add dev "+name+" altname alt%d"))
		}
		s = append(s, g.fill("ip addr add "+one(g, addresses)+" dev "+name))
	}
	for _, rule := range g.some(g.IntN(3), disciplines) {
		s = append(s, "tc "+rule)
	}
	return s
}

// addresses are addresses of links, all of documentation ranges.
var addresses = []string{"192.0.2.%d/32", "192.0.2.%d/25 label x:%d", "192.0.2.%d peer 203.0.113.7/32",
	"198.18.%d.1/24 scope link", "198.18.%d.2/31", "2001:db8:%d::1/64 nodad",
	"2001:db8:%d::1/128 valid_lft 90000 preferred_lft 0 nodad",
	"2001:db8:%d::3/64 home nodad", "2001:db8:%d::5/127 noprefixroute nodad", "169.254.%d.1/16 noprefixroute",
	"fe80::%d/64 nodad", "198.18.%d.4/24 metric 5", "anycast 2001:db8:7::"}
