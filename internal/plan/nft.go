package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// The sets of our table that hold interfaces and address ranges; each of the
// address sets exists twice, with the suffix 4 or 6.
const (
	// SetLinks holds the host's links that lead to our sandboxes.
	SetLinks = "links"
	// SetLAN holds those of them whose sandboxes are on the LAN themselves, and
	// know the way back to nothing that is behind the host.
	SetLAN = "lan"
	// SetIsolated holds those that only published ports and answers may
	// enter from elsewhere.
	SetIsolated = "isolated"
	// SetInternal holds those that nothing may enter or leave.
	SetInternal = "internal"
	// SetWithin holds each link paired with itself: traffic within a network.
	SetWithin = "within"
	// SetOutbound holds pairs of source and destination ranges that are
	// masqueraded where they leave for the world.
	SetOutbound = "outbound"
	// SetHairpin holds pairs of source and destination ranges whose answers
	// would pass us by if the source were kept.
	SetHairpin = "hairpin"
	// SetProxied holds host addresses, protocols and ports of the proxy, which
	// internal networks must not reach.
	SetProxied = "proxied"
)

// The maps of our table that lead a host port to an endpoint; each exists
// twice, with the suffix 4 or 6.
const (
	// MapPorts: host address . protocol . port -> address . port (hash).
	MapPorts = "ports"
	// MapAnyPorts: protocol . port -> address . port (hash).
	MapAnyPorts = "anyports"
	// MapRanges: host addresses . protocol . ports -> address, the port kept
	// (interval).
	MapRanges = "ranges"
)

// Table is the skeleton of our nft table: its sets, maps and chains. What
// networks and publishes need are elements, so the rules never change.
type Table struct{}

// Key implements Object.
func (Table) Key() string { return "nft table" }

// Add implements Object.
func (Table) Add() []string { return []string{"nft -f - <<'EOF'\n" + TableText + "EOF"} }

// Del implements Object.
func (Table) Del() []string { return []string{"nft delete table inet " + Mark} }

// TableText is the skeleton as nft prints it. Package kernel builds the same
// through netlink, and a test there compares the two.
//
// A packet that meets `publish` is the first of its flow; conntrack repeats
// the answer for the rest, and one rule of `forward` is all that the others
// of a published flow meet. No two elements cover the same packet, so the
// order in `publish` only says what is looked for first.
//
// An internal network reaches no published port: what NAT has led elsewhere is
// dropped in `forward`, and what is for the proxy in the guard.
//
// The guard also closes what route_localnet opens: on our links, only the host
// itself may speak to or from 127.0.0.0/8, and be answered. What comes in for
// 127.0.0.0/8 by any other link is never led on, for that would save it from
// being dropped as a martian; the host's own packets are led on in `output`.
// A packet to ::1 is left alone: it could leave for the endpoint, but no
// answer would ever be routed back to ::1.
//
// Conntrack matches a packet to a flow by addresses alone, wherever it comes
// from. So `sources` drops what a sandbox sends from the host's own addresses
// (Linux does that itself for IPv4), and what one of an internal network sends
// from an address that is not behind its link. An internal network sends no
// ICMP errors out either: one would be related to any flow that it quotes.
//
// Each element of a map counts what meets it, which is the first packet of each
// flow (Linux 5.7; an older kernel ignores that it shall).
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

// NFTMapping leads packets for a host address and ports to an endpoint: one
// element of one of the maps.
type NFTMapping struct {
	// Host is a local address, or unspecified for every one of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
	// To is the endpoint's address, of the same family as Host.
	To netip.Addr
	// ToPort is the endpoint's port; 0 keeps the port, and only then may
	// Ports hold more than one.
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

// change replaces the element in one transaction: nft adds none that is there
// with another value.
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

// Member is an element of one of the sets: a link's name, or a pair of
// address ranges.
type Member struct {
	// Set is one of the Set constants.
	Set  string
	Link string
	Src  netip.Prefix
	Dst  netip.Prefix
}

// Name returns the set's name with the family's suffix where it has one.
func (m Member) Name() string {
	if m.Link != "" {
		return m.Set
	}
	return m.Set + familySuffix(m.Src.Addr())
}

// Key implements Object.
func (m Member) Key() string { return "nft " + m.Name() + " " + m.element() }

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

// Proxied keeps a host address and ports of the proxy from internal networks: an
// element of a set.
type Proxied struct {
	// Host is a local address, or unspecified for every one of its family.
	Host  netip.Addr
	Proto model.Proto
	Ports model.PortRange
}

// Name returns the name of the set that holds the element.
func (p Proxied) Name() string { return SetProxied + familySuffix(p.Host) }

// Key implements Object.
func (p Proxied) Key() string { return "nft " + p.Name() + " " + p.element() }

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

// KeepProxied returns what keeps the ports of the parts' listeners from internal
// networks, if the parts have any.
func KeepProxied(parts []Part) Plan {
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
