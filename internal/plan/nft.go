package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

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
	// SetInternal holds the links of internal networks. Only traffic within the
	// network may pass them.
	SetInternal = "internal"
	// SetWithin holds each link paired with itself: traffic within a network.
	SetWithin = "within"
	// SetOutbound holds pairs of source and destination ranges that are masqueraded
	// when they leave the host.
	SetOutbound = "outbound"
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
type Table struct{}

// Key implements Object.
func (Table) Key() string { return "nft table" }

func (Table) group() Group { return GroupTable }

// Add implements Object.
func (Table) Add() []string { return []string{"nft -f - <<'EOF'\n" + TableText + "EOF"} }

// Del implements Object.
func (Table) Del() []string { return []string{"nft delete table inet " + Mark} }

// TableText is the skeleton as nft prints it. Package kernel builds the same table
// through netlink, and a test there compares the two.
//
// Only the first packet of a flow passes `publish`. Conntrack translates the
// others, and of `forward` they pass two rules only. No two elements match the same
// packet, so the order in `publish` does not change the result.
//
// An internal network cannot reach a published port: packets that NAT translated
// are dropped in `forward`, and packets to the proxy are dropped in `guard`.
//
// The chain `guard` also closes what the sysctl route_localnet opens: on Fairlead's
// links, only the host itself may exchange packets with 127.0.0.0/8. Packets to
// 127.0.0.0/8 that enter by any other link are never translated, because
// translation would keep the kernel from dropping them as martians. The host's own
// packets are translated in `output`. A packet to ::1 is never translated: it could
// reach the endpoint, but the answer to ::1 could not be routed back.
//
// Conntrack matches a packet to a flow by its addresses alone, not by its link. So
// `sources` drops packets that a sandbox sends from the host's addresses (for IPv4,
// Linux does that too), and packets that a sandbox of an internal network sends
// from an address that is not behind its link. An internal network cannot send ICMP
// errors to other networks either, because conntrack would relate them to any flow
// that they quote.
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
	set links {
		type ifname
	}
	set lan {
		type ifname
	}
	set isolated {
		type ifname
	}
	set internal {
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
		iifname @links fib saddr type local drop
		iifname @internal fib saddr . iif oif missing drop
	}
	chain guard {
		type filter hook input priority raw; policy accept;
		ip daddr 127.0.0.0/8 iifname @links ct state invalid,new,untracked drop
		ip saddr 127.0.0.0/8 iifname @links drop
		ip daddr . meta l4proto . th dport @proxied4 iifname @internal ct state invalid,new,untracked drop
		ip6 daddr . meta l4proto . th dport @proxied6 iifname @internal ct state invalid,new,untracked drop
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
		iifname @internal ct state related drop
		ct state established,related accept
		iifname . oifname @within accept
		iifname @internal drop
		ct status dnat accept
		oifname @internal drop
		oifname @isolated drop
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ct status dnat jump returns
		oifname @links oifname != @lan accept
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

// NFTMapping translates packets for a host address and ports to an endpoint. It is
// one element of one of the maps.
type NFTMapping struct {
	// Host is a local address, or unspecified for all addresses of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
	// To is the endpoint's address, of the same family as Host.
	To netip.Addr
	// ToPort is the endpoint's port. 0 keeps the port; Ports may have more than one
	// port only then.
	ToPort uint16
}

// Map returns the name of the map that holds the element.
func (m NFTMapping) Map() string {
	switch {
	case m.ToPort == 0:
		return MapRanges + m.suffix()
	case m.Host.IsUnspecified():
		return MapAnyPorts + m.suffix()
	default:
		return MapPorts + m.suffix()
	}
}

// HostRange returns the host addresses that the element covers.
func (m NFTMapping) HostRange() netip.Prefix {
	if m.Host.IsUnspecified() {
		return netip.PrefixFrom(m.Host, 0)
	}
	return netip.PrefixFrom(m.Host, m.Host.BitLen())
}

func (m NFTMapping) suffix() string { return familySuffix(m.Host) }

// Key implements Object.
func (m NFTMapping) Key() string {
	return "nft " + m.Map() + " " + m.Host.String() + " " + string(m.Proto) + " " + m.Ports.String()
}

func (NFTMapping) group() Group { return GroupTable }

// Add implements Object.
func (m NFTMapping) Add() []string {
	to := m.To.String()
	if m.ToPort != 0 {
		to = fmt.Sprintf("%s . %d", m.To, m.ToPort)
	}
	return []string{fmt.Sprintf("nft add element inet %s %s '{ %s : %s }'", Mark, m.Map(), m.element(), to)}
}

// Del implements Object.
func (m NFTMapping) Del() []string {
	return []string{fmt.Sprintf("nft delete element inet %s %s '{ %s }'", Mark, m.Map(), m.element())}
}

// change implements changer. It replaces the element in one transaction, because
// nft does not add an element that exists with another value.
func (m NFTMapping) change(old Object) []string {
	join := strings.NewReplacer("nft ", "", "'", "")
	return []string{"nft '" + join.Replace(old.Del()[0]) + "; " + join.Replace(m.Add()[0]) + "'"}
}

func (m NFTMapping) element() string {
	ports := fmt.Sprintf("%s . %s", m.Proto, m.Ports)
	switch {
	case m.ToPort == 0:
		return m.HostRange().String() + " . " + ports
	case m.Host.IsUnspecified():
		return ports
	default:
		return m.Host.String() + " . " + ports
	}
}

// Member is an element of one of the sets: a link's name, a pair of links, or a
// pair of address ranges.
type Member struct {
	// Set is one of the Set constants.
	Set  string
	Link string
	Src  netip.Prefix
	Dst  netip.Prefix
}

// Name returns the set's name, with the family's suffix if it holds addresses.
func (m Member) Name() string {
	if m.Link != "" {
		return m.Set
	}
	return m.Set + familySuffix(m.Src.Addr())
}

// Key implements Object.
func (m Member) Key() string { return "nft " + m.Name() + " " + m.element() }

func (Member) group() Group { return GroupTable }

// Add implements Object.
func (m Member) Add() []string { return []string{m.command("add")} }

// Del implements Object.
func (m Member) Del() []string { return []string{m.command("delete")} }

func (m Member) command(verb string) string {
	return fmt.Sprintf("nft %s element inet %s %s %s", verb, Mark, m.Name(), escape.Shell("{ "+m.element()+" }"))
}

func (m Member) element() string {
	switch {
	case m.Set == SetWithin:
		return m.Link + " . " + m.Link
	case m.Link != "":
		return m.Link
	default:
		return m.Src.String() + " . " + m.Dst.String()
	}
}

// Proxied closes a host address and ports of the proxy for internal networks. It is
// an element of a set.
type Proxied struct {
	// Host is a local address, or unspecified for all addresses of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
}

// Name returns the name of the set that holds the element.
func (p Proxied) Name() string { return SetProxied + familySuffix(p.Host) }

// Key implements Object.
func (p Proxied) Key() string { return "nft " + p.Name() + " " + p.element() }

func (Proxied) group() Group { return GroupTable }

// Add implements Object.
func (p Proxied) Add() []string { return []string{p.command("add")} }

// Del implements Object.
func (p Proxied) Del() []string { return []string{p.command("delete")} }

func (p Proxied) command(verb string) string {
	return fmt.Sprintf("nft %s element inet %s %s '{ %s }'", verb, Mark, p.Name(), p.element())
}

func (p Proxied) element() string {
	return fmt.Sprintf("%s . %s . %s", NFTMapping{Host: p.Host}.HostRange(), p.Proto, p.Ports)
}

// ProxiedPorts returns the elements that close the ports of the parts' listeners
// for internal networks. It returns nil if no part has an internal network.
func ProxiedPorts(parts []Part) Plan {
	internal := false
	var listeners []Listener
	for _, part := range parts {
		for _, o := range part.objects {
			switch o := o.(type) {
			case Member:
				internal = internal || o.Set == SetInternal
			case Listener:
				listeners = append(listeners, o)
			}
		}
	}
	if !internal {
		return nil
	}
	var all Plan
	for _, l := range listeners {
		hosts := []netip.Addr{l.Host}
		if !l.Host.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			all = append(all, Proxied{host, l.Proto, l.Ports})
		}
	}
	return all
}

func familySuffix(a netip.Addr) string {
	if a.Is4() {
		return "4"
	}
	return "6"
}
