package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/model"
)

// IPVSTable is the skeleton of the nft table that masquerades flows to real servers
// of IPVS if their answers to the client would not return through the host. It is a
// separate table, so that only hosts with such services pay for it.
//
// Conntrack does not treat IPVS as NAT, and IPVS rewrites a packet before any rule
// can determine which service it belongs to. So a rule sets a label on each flow
// (connlabel, one bit of 128) when it is opened to a frontend. The label identifies
// the flow's packets when they leave.
type IPVSTable struct{}

// IPVSTableName names the table, of family inet.
const IPVSTableName = Mark + "-ipvs"

// The sets of the table. Each exists twice, with the suffix 4 or 6.
const (
	// SetIPVSKept holds the frontends (address . protocol . port) whose real
	// servers see the client.
	SetIPVSKept = "kept"
	// SetIPVSMixed holds the frontends of which only some real servers see the
	// client. Those in SetIPVSMasqueraded see the host.
	SetIPVSMixed = "mixed"
	// SetIPVSHidden holds the frontends whose real servers see the host.
	SetIPVSHidden = "hidden"
	// SetIPVSMasqueraded holds the real servers of SetIPVSMixed that see the host.
	SetIPVSMasqueraded = "masqueraded"
	// SetIPVSHairpin holds pairs of clients and real servers. The real server sees
	// the host, because its answers to this client would bypass the host.
	SetIPVSHairpin = "hairpin"
)

// The labels of flows, one per set that the frontend is in.
const (
	LabelIPVSKept   = 117
	LabelIPVSMixed  = 118
	LabelIPVSHidden = 119
)

// IPVSTableText is the table as nft prints it. Package kernel compiles it for
// netlink.
const IPVSTableText = `table inet fairlead-ipvs {
	set kept4 {
		type ipv4_addr . inet_proto . inet_service
	}
	set mixed4 {
		type ipv4_addr . inet_proto . inet_service
	}
	set hidden4 {
		type ipv4_addr . inet_proto . inet_service
	}
	set masqueraded4 {
		type ipv4_addr
	}
	set hairpin4 {
		type ipv4_addr . ipv4_addr
		flags interval
	}
	set kept6 {
		type ipv6_addr . inet_proto . inet_service
	}
	set mixed6 {
		type ipv6_addr . inet_proto . inet_service
	}
	set hidden6 {
		type ipv6_addr . inet_proto . inet_service
	}
	set masqueraded6 {
		type ipv6_addr
	}
	set hairpin6 {
		type ipv6_addr . ipv6_addr
		flags interval
	}
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		ct state new jump opened
	}
	chain output {
		type filter hook output priority mangle; policy accept;
		ct state new jump opened
	}
	chain opened {
		ip daddr . meta l4proto . th dport @kept4 ct label set 117
		ip daddr . meta l4proto . th dport @mixed4 ct label set 118
		ip daddr . meta l4proto . th dport @hidden4 ct label set 119
		ip6 daddr . meta l4proto . th dport @kept6 ct label set 117
		ip6 daddr . meta l4proto . th dport @mixed6 ct label set 118
		ip6 daddr . meta l4proto . th dport @hidden6 ct label set 119
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ct label 119 masquerade
		ct label 117 jump past
		ct label 118 jump past
		ct label 118 ip daddr @masqueraded4 masquerade
		ct label 118 ip6 daddr @masqueraded6 masquerade
	}
	chain past {
		ip saddr . ip daddr @hairpin4 masquerade
		ip6 saddr . ip6 daddr @hairpin6 masquerade
	}
}
`

// Key implements Object.
func (IPVSTable) Key() string { return "nft table " + IPVSTableName }

// Add implements Object.
func (IPVSTable) Add() []string { return []string{"nft -f - <<'EOF'\n" + IPVSTableText + "EOF"} }

// Del implements Object.
func (IPVSTable) Del() []string { return []string{"nft delete table inet " + IPVSTableName} }

// IPVSMember is an element of one of the table's sets.
type IPVSMember struct {
	// Set is one of the SetIPVS constants.
	Set string
	// Proto and At are a frontend. For SetIPVSMasqueraded, At is an address without
	// a port.
	Proto model.Proto
	At    netip.AddrPort
	// Src and Dst are the client and the real server of SetIPVSHairpin.
	Src, Dst netip.Prefix
}

// Name returns the set's name with the family's suffix.
func (m IPVSMember) Name() string {
	if m.Set == SetIPVSHairpin {
		return m.Set + familySuffix(m.Src.Addr())
	}
	return m.Set + familySuffix(m.At.Addr())
}

// Key implements Object.
func (m IPVSMember) Key() string { return "nft ipvs " + m.Name() + " " + m.element() }

// Add implements Object.
func (m IPVSMember) Add() []string { return nftElement("add", IPVSTableName, m.Name(), m.element()) }

// Del implements Object.
func (m IPVSMember) Del() []string { return nftElement("delete", IPVSTableName, m.Name(), m.element()) }

func (m IPVSMember) element() string {
	switch m.Set {
	case SetIPVSHairpin:
		return m.Src.String() + " . " + m.Dst.String()
	case SetIPVSMasqueraded:
		return m.At.Addr().String()
	}
	return fmt.Sprintf("%s . %s . %d", m.At.Addr(), m.Proto, m.At.Port())
}
