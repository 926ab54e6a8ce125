// Package rules says in one form what the rules of nftables, of iptables-nft and
// of legacy iptables hold, whoever made them, and follows a packet through them.
// It sets nothing, and reads nothing itself: package kernel hands it what the
// kernel says.
//
// Theory of operation. A rule is conditions and one action. A condition holds
// fields of a packet against ranges of bytes, as they are on the wire: so a port,
// a prefix, a range, a set, an element of a concatenation and a link's name are
// all the same thing. A rule that looks an action up in a map is one rule an
// element. What is not understood makes a rule Partial, and what follows from it
// is then Maybe: nobody is told for certain what is only likely.
//
// The library leaves out expressions that it does not know (socket, rt, xfrm, osf):
// package kernel marks their places with Opaque.
//
// The forms come from linux/netfilter/nf_tables.h and, for what iptables-nft
// wraps, from linux/netfilter/xt_*.h.
package rules

import (
	"net/netip"

	"fairlead/internal/model"
)

// Ruleset is all chains of a network namespace, those with a hook in the order
// in which packets meet them.
type Ruleset []Chain

// Chain is rules one after the other.
type Chain struct {
	// Table is the family and the name, e.g. "ip nat" or "inet fairlead", and
	// "ip nat (legacy)" for those of legacy iptables.
	Table string `json:"table"`
	Name  string `json:"name"`
	// Hook is where packets meet the chain: prerouting, input, forward, output,
	// postrouting, ingress, egress; empty for a chain that others jump to.
	Hook string `json:"hook,omitempty"`
	// Links are those whose packets meet a chain at ingress or egress.
	Links []string `json:"links,omitempty"`
	// Type is filter, nat or route.
	Type     string `json:"type,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Policy is what becomes of a packet at the end of a chain with a hook.
	Policy Action `json:"policy,omitempty"`
	Rules  []Rule `json:"rules"`
}

// Action is what a rule does with a packet for which its conditions hold.
type Action string

// The actions. A rule that only counts or logs has none.
const (
	None       Action = ""
	Accept     Action = "accept"
	Drop       Action = "drop"
	Reject     Action = "reject"
	Jump       Action = "jump"
	Goto       Action = "goto"
	Return     Action = "return"
	DNAT       Action = "dnat"
	SNAT       Action = "snat"
	Masquerade Action = "masquerade"
	Redirect   Action = "redirect"
	NoTrack    Action = "notrack"
	Other      Action = "other"
)

// Rule is conditions, which all must hold, and what is done then.
type Rule struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Action     Action      `json:"action,omitempty"`
	// Chain is where Jump and Goto lead.
	Chain string `json:"chain,omitempty"`
	// To and ToPorts are what NAT writes; the zero values leave what was.
	To      netip.Addr      `json:"to,omitzero"`
	ToPorts model.PortRange `json:"toPorts,omitzero"`
	// Assigns are the marks that the rule sets before its action.
	Assigns []Assign `json:"assigns,omitempty"`
	// Partial says that the rule holds more than is understood here.
	Partial bool `json:"partial,omitempty"`
	// Handle is nftables' number for it, by which traces name it; 0 elsewhere.
	Handle uint64 `json:"handle,omitempty"`
	// Comment is the rule's, or that of the program that made it.
	Comment string `json:"comment,omitempty"`
}

// Field is something of a packet.
type Field string

// The fields. An address is 4 or 16 bytes, which tells its family.
const (
	Source      Field = "saddr"
	Destination Field = "daddr"
	SourcePort  Field = "sport"
	Port        Field = "dport"
	Protocol    Field = "l4proto"
	Family      Field = "nfproto"
	InLink      Field = "iifname"
	OutLink     Field = "oifname"
	// DestinationType and SourceType are a route's type, such as RTN_LOCAL.
	DestinationType Field = "fib daddr type"
	SourceType      Field = "fib saddr type"
	// State and Status are conntrack's, as masks.
	State  Field = "ct state"
	Status Field = "ct status"
	// Mark is the packet's mark and CtMark its connection's. Conditions hold them
	// most significant byte first, so that ranges compare as numbers.
	Mark   Field = "meta mark"
	CtMark Field = "ct mark"
	// EtherType is the protocol of a frame, e.g. 0x0806 for ARP.
	EtherType Field = "ether type"
	// EtherSource and EtherDestination are addresses of Ethernet.
	EtherSource      Field = "ether saddr"
	EtherDestination Field = "ether daddr"
	// ICMPType is the type of a message of ICMP or ICMPv6.
	ICMPType Field = "icmp type"
	// ARPOperation is 1 for a request and 2 for a reply.
	ARPOperation Field = "arp operation"
	// Flags are those of TCP; a packet is the first of its connection.
	Flags Field = "tcp flags"
)

// Range is values from First to Last, as they are on the wire.
type Range struct {
	First []byte `json:"first"`
	Last  []byte `json:"last"`
}

// Condition holds if the fields are in one of the tuples of ranges, or in none
// of them if Not.
type Condition struct {
	Fields []Field   `json:"fields"`
	Not    bool      `json:"not,omitempty"`
	In     [][]Range `json:"in,omitempty"`
	// Any, instead of In, are the bits of one field of which some must be set.
	Any []byte `json:"any,omitempty"`
	// Mask are the bits of one field that are compared with In; nil for all.
	Mask []byte `json:"mask,omitempty"`
}
