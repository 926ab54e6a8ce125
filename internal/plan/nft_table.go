package plan

// The sets of Fairlead's table that hold links and address ranges. Each of the
// address sets exists twice, with the suffix 4 or 6.
const (
	// SetLinks holds the host's links to Fairlead's sandboxes.
	SetLinks = "links"
	// SetLAN holds the links of SetLinks whose sandboxes are on the LAN. These
	// sandboxes have no route back to networks behind the host.
	SetLAN = "lan"
	// SetIsolated holds the links that only answers and packets to published ports
	// may enter from other networks.
	SetIsolated = "isolated"
	// SetWithin holds each link paired with itself: traffic within a network.
	SetWithin = "within"
	// SetOutbound holds pairs of source and destination ranges that are masqueraded
	// when they leave the host.
	SetOutbound = "outbound"
	// SetRenumbered holds one pair, of all addresses and all addresses, if a network of the
	// host has outbound flows (Outbound). It exists for IPv4 only.
	SetRenumbered = "renumbered"
	// SetSandboxes holds pairs of the ranges that have the addresses of sandboxes and of
	// all addresses.
	SetSandboxes = "sandboxes"
	// SetHairpin holds pairs of source and destination ranges whose answers would
	// bypass the host if the source address were kept.
	SetHairpin = "hairpin"
	// SetProxied holds host addresses, protocols and ports of the proxy. Internal
	// networks must not reach them.
	SetProxied = "proxied"
)

// The maps of Fairlead's table from a host port to an endpoint. Each exists twice,
// with the suffix 4 or 6.
const (
	// MapPorts: host address . protocol . port -> address . port (hash).
	MapPorts = "ports"
	// MapAnyPorts: protocol . port -> address . port (hash).
	MapAnyPorts = "anyports"
	// MapRanges: host addresses . protocol . ports -> address, the port kept
	// (interval).
	MapRanges = "ranges"
)

// Table is the skeleton of Fairlead's nft table: its sets, maps and chains.
// Networks and publishes only add elements, so the rules never change.
type Table struct {
	// Damaged is true for an observed table that must be replaced.
	Damaged bool
}

// Key implements Object.
func (Table) Key() string { return "nft table" }

func (Table) group() Group { return GroupTable }

// Add implements Object.
func (Table) Add() []string { return []string{"nft -f - <<'EOF'\n" + TableText + "EOF"} }

// Del implements Object.
func (Table) Del() []string { return []string{"nft delete table inet " + Mark} }

// TableText is the skeleton as nft prints it. Package kernel compiles it for
// netlink.
//
// Only the first packet of a flow passes `publish`. Conntrack translates the
// others, and of `forward` they pass two rules only. No two elements match the same
// packet, so the order in `publish` does not change the result.
//
// The numbers 1717660019 and 1717660020 are SandboxLinks and InternalLinks. Every
// packet that the host receives passes `sources`, and `guard` if it is for the host.
// Packets from links in neither group meet two comparisons of a number there, and no
// lookup.
//
// An internal network cannot reach a published port: packets that NAT translated
// are dropped in `forward`, and packets to the proxy are dropped in
// `internal_ports`. That is after NAT, which may change a packet's port, and after
// routing, which also delivers broadcasts to the proxy.
//
// The chain `loopback_links` closes what the sysctl route_localnet opens: on Fairlead's
// links, only the host itself may exchange packets with 127.0.0.0/8. An ordinary packet
// meets two comparisons in `guard` and does not reach that chain. Packets to
// 127.0.0.0/8 that enter by any other link are never translated, because
// translation would keep the kernel from dropping them as martians. The host's own
// packets are translated in `output`. A packet to ::1 is never translated: it could
// reach the endpoint, but the answer to ::1 could not be routed back.
//
// Conntrack matches a packet to a flow by its addresses alone, not by its link. So
// `sources` drops packets that a sandbox sends from the host's addresses (for IPv4,
// Linux does that too), and `internal_sources` also drops packets that a sandbox of
// an internal network sends from an address that is not behind its link. The eBPF
// program fl_sandbox sets a bit in the mark of a packet whose source it has found to be
// the endpoint's address; the bit (SourceValid) is cleared, and saves the lookup of the
// source in the routing table, which costs about 150 ns. An internal
// network cannot send ICMP errors to other networks either, because conntrack would
// relate them to any flow that they quote.
//
// One forged datagram between two published ports could go in circles for ever: the
// sandbox behind each port answers the other. Its later packets look like those of an
// honest exchange. So `datagrams` checks the source of the first datagram of each UDP
// flow to the host, whichever mode publishes the port. It drops the datagram if the
// source is the host's own and the link is not lo. It also drops it if the host has no
// route to the source through the link, and either the link is a sandbox's or the source
// is in `sandboxes`. Links and sandboxes on the LAN are left out: packets of these sandboxes
// may also arrive on the parent.
//
// If the eBPF programs translate flows (bpf/include/outbound.h), `renumbered4` has an
// element. Their ports are below and above those from which the host connects, and
// masquerade uses none of them then. Without a range, conntrack keeps a port below 1024
// below, and chooses any port above if the source port is in use. Conntrack does not
// translate packets that it finds invalid, such as a reset after a connection's end:
// `forward` drops them, so that they do not leave with the sandbox's address.
//
// Each element of a map counts the first packets of flows that match it (Linux 5.7
// or later; an older kernel ignores the flag).
const TableText = `table inet fairlead {
	map ports4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		counter
	}
	map ports6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service
		counter
	}
	map anyports4 {
		type inet_proto . inet_service : ipv4_addr . inet_service
		counter
	}
	map anyports6 {
		type inet_proto . inet_service : ipv6_addr . inet_service
		counter
	}
	map ranges4 {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr
		flags interval
		counter
	}
	map ranges6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr
		flags interval
		counter
	}
	set hairpin4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}
	set hairpin6 {
		type ipv6_addr . ipv6_addr
		flags interval
	}
	set outbound4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}
	set outbound6 {
		type ipv6_addr . ipv6_addr
		flags interval
	}
	set renumbered4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}
	set sandboxes4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}
	set sandboxes6 {
		type ipv6_addr . ipv6_addr
		flags interval
	}
	set links {
		type ifname
	}
	set lan {
		type ifname
	}
	set isolated {
		type ifname
	}
	set within {
		type ifname . ifname
	}
	set proxied4 {
		type ipv4_addr . inet_proto . inet_service
		flags interval
	}
	set proxied6 {
		type ipv6_addr . inet_proto . inet_service
		flags interval
	}
	chain sources {
		type filter hook prerouting priority raw; policy accept;
		iifgroup 1717660019 jump sandbox_sources
		iifgroup 1717660020 jump internal_sources
	}
	chain sandbox_sources {
		meta mark & 0x40000000 == 0x40000000 meta mark set meta mark & 0xbfffffff accept
		fib saddr type local drop
	}
	chain internal_sources {
		fib saddr type local drop
		fib saddr . iif oif missing drop
	}
	chain datagrams {
		type nat hook prerouting priority dstnat - 10; policy accept;
		meta l4proto udp fib daddr type local jump datagram_sources
	}
	chain datagram_sources {
		iif "lo" accept
		fib saddr type local drop
		iifgroup 1717660019 iifname != @lan fib saddr . iif oif missing drop
		ip saddr . ip daddr @sandboxes4 fib saddr . iif oif missing drop
		ip6 saddr . ip6 daddr @sandboxes6 fib saddr . iif oif missing drop
	}
	chain guard {
		type filter hook input priority raw; policy accept;
		ip daddr 127.0.0.0/8 goto loopback
		ip saddr 127.0.0.0/8 goto loopback
		iifgroup 1717660020 jump internal_ports
	}
	chain loopback {
		iifgroup 1717660019 jump loopback_links
		iifgroup 1717660020 jump loopback_links
	}
	chain loopback_links {
		ip saddr 127.0.0.0/8 drop
		ct state invalid,new,untracked drop
	}
	chain internal_ports {
		ip daddr . meta l4proto . th dport @proxied4 ct state invalid,new,untracked drop
		ip6 daddr . meta l4proto . th dport @proxied6 ct state invalid,new,untracked drop
	}
	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr 127.0.0.0/8 accept
		ip6 daddr fe80::/10 accept
		fib daddr type local jump publish
	}
	chain output {
		type nat hook output priority -100; policy accept;
		ip6 daddr ::1 accept
		ip6 daddr fe80::/10 accept
		fib daddr type local jump publish
	}
	chain publish {
		meta nfproto ipv4 dnat ip to meta l4proto . th dport map @anyports4
		dnat ip to ip daddr . meta l4proto . th dport map @ports4
		dnat ip to ip daddr . meta l4proto . th dport map @ranges4
		meta nfproto ipv6 dnat ip6 to meta l4proto . th dport map @anyports6
		dnat ip6 to ip6 daddr . meta l4proto . th dport map @ports6
		dnat ip6 to ip6 daddr . meta l4proto . th dport map @ranges6
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		iifgroup 1717660020 ct state related drop
		ct state established,related accept
		iifname . oifname @within accept
		iifgroup 1717660020 drop
		ct status dnat accept
		oifgroup 1717660020 drop
		oifname @isolated drop
		ct state invalid ip saddr . ip daddr @outbound4 drop
		ct state invalid ip6 saddr . ip6 daddr @outbound6 drop
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ct status dnat jump returns
		oifname @links oifname != @lan accept
		tcp sport >= 1024 ip saddr . ip daddr @renumbered4 ip saddr . ip daddr @outbound4 masquerade to :32768-60999
		udp sport >= 1024 ip saddr . ip daddr @renumbered4 ip saddr . ip daddr @outbound4 masquerade to :32768-60999
		ip saddr . ip daddr @outbound4 masquerade
		ip6 saddr . ip6 daddr @outbound6 masquerade
	}
	chain returns {
		ip saddr . ip daddr @hairpin4 masquerade
		ip6 saddr . ip6 daddr @hairpin6 masquerade
		ip saddr 127.0.0.0/8 oifname @links masquerade
	}
}
`
