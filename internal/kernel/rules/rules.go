// Package rules represents the rules of nftables, iptables-nft and legacy iptables
// in one form, whichever program created them, and follows packets through them. It
// only evaluates rules: package kernel reads them and passes them in.
//
// Theory of operation. A rule consists of conditions and one action. A condition
// compares fields of a packet with ranges of bytes, in the byte order of the
// packet. Thus ports, prefixes, ranges, sets, elements of concatenations and link
// names are all the same. A rule that looks up its action in a map becomes one rule
// per element. A rule with conditions that are not supported is Partial, and names them. What
// is supported still decides: such a rule does not match a packet that fails one of
// its other conditions. A verdict is certain if it is the same whether or not the
// rules match of which that is not known.
//
// The library omits expressions that it does not support (socket, rt, xfrm, osf):
// package kernel inserts Opaque in their place.
//
// The formats are defined in linux/netfilter/nf_tables.h and, for what iptables-nft
// wraps, in linux/netfilter/xt_*.h.
package rules

import (
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// Ruleset contains all chains of a network namespace. The chains of a hook are in
// the order in which packets traverse them.
type Ruleset []Chain

// Chain is a list of rules, which are evaluated in order.
type Chain struct {
	// Table is the family and the name, e.g. "ip nat" or "inet fairlead", or "ip
	// nat (legacy)" for legacy iptables.
	Table string `json:"table"`
	Name  string `json:"name"`
	// Hook is where packets enter the chain: prerouting, input, forward, output,
	// postrouting, ingress or egress. It is empty for a chain that is only jumped
	// to.
	Hook string `json:"hook,omitempty"`
	// Links are the links whose packets enter a chain at ingress or egress.
	Links []string `json:"links,omitempty"`
	// Type is filter, nat or route.
	Type     string `json:"type,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Policy applies to packets at the end of a chain with a hook.
	Policy Action `json:"policy,omitempty"`
	Rules  []Rule `json:"rules"`
}

// Action is what a rule does with a packet that matches its conditions.
type Action string

// The actions. A rule that only counts or logs has the action None.
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

// Rule is a list of conditions, all of which must match, and an action.
type Rule struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Action     Action      `json:"action,omitempty"`
	// Chain is the target of Jump and Goto.
	Chain string `json:"chain,omitempty"`
	// To and ToPorts are the new address and ports of NAT; zero values mean no
	// change.
	To netip.Addr `json:"to,omitzero"`
	// ToLast is the last address if NAT chooses one from To to ToLast.
	ToLast  netip.Addr      `json:"toLast,omitzero"`
	ToPorts model.PortRange `json:"toPorts,omitzero"`
	// Assigns are the marks that the rule sets before its action.
	Assigns []Assign `json:"assigns,omitempty"`
	// Choice means that NAT chooses one of several addresses: those up to ToLast, or,
	// if To is invalid, any.
	Choice bool `json:"choice,omitempty"`
	// Partial means that the rule has conditions that are not supported, so that it
	// may not match.
	Partial bool `json:"partial,omitempty"`
	// Alters names what the rule changes of a packet that no condition compares; empty if
	// nothing.
	Alters string `json:"alters,omitempty"`
	// Unread names what of the rule is not supported.
	Unread []string `json:"unread,omitempty"`
	// Until is when the first element that the rule looks up expires; zero if none does.
	Until time.Time `json:"-"`
	// Handle is nftables' number of the rule, which traces contain; 0 for legacy
	// iptables.
	Handle uint64 `json:"handle,omitempty"`
	// Comment is the comment of the rule, set by a user or by the program that
	// created it.
	Comment string `json:"comment,omitempty"`
}

// Field is a property of a packet.
type Field string

// The fields. An address has 4 or 16 bytes, depending on its family.
const (
	Source      Field = "saddr"
	Destination Field = "daddr"
	SourcePort  Field = "sport"
	Port        Field = "dport"
	Protocol    Field = "l4proto"
	Family      Field = "nfproto"
	InLink      Field = "iifname"
	OutLink     Field = "oifname"
	// DestinationType and SourceType are route types, such as RTN_LOCAL.
	DestinationType Field = "fib daddr type"
	SourceType      Field = "fib saddr type"
	// ReturnRoute is 1 if the route to the source leaves on the link on which the packet arrives, else 0.
	ReturnRoute Field = "fib saddr . iif oif"
	// State and Status are conntrack's, as bit masks.
	State  Field = "ct state"
	Status Field = "ct status"
	// Mark is the packet's mark and CtMark its connection's. Conditions contain
	// them in network byte order, so that ranges compare as numbers.
	Mark   Field = "meta mark"
	CtMark Field = "ct mark"
	// FragmentOffset is the offset in the fragment header of an IPv6 packet, which other packets lack.
	FragmentOffset Field = "frag frag-off"
	// EtherType is the protocol of a frame, e.g. 0x0806 for ARP.
	EtherType Field = "ether type"
	// EtherSource and EtherDestination are Ethernet addresses.
	EtherSource      Field = "ether saddr"
	EtherDestination Field = "ether daddr"
	// ICMPType and ICMPCode are the type and code of an ICMP or ICMPv6 message.
	ICMPType Field = "icmp type"
	ICMPCode Field = "icmp code"
	// Direction is 0 for the packets of the client and 1 for those of the server.
	Direction Field = "ct direction"
	// XTState is conntrack's state as iptables defines it: a bit mask that includes
	// source and destination NAT.
	XTState Field = "ctstate"
	// Unread is a field that is not supported.
	Unread Field = "…"
	// ARPOperation is 1 for a request and 2 for a reply.
	ARPOperation Field = "arp operation"
	// Flags are the TCP flags; a packet is assumed to be the first of its
	// connection.
	Flags Field = "tcp flags"
)

// Range contains the values from First to Last, in the byte order of the packet.
type Range struct {
	First []byte `json:"first"`
	Last  []byte `json:"last"`
}

// Condition matches if the fields are in one of the tuples of ranges. With Not it
// matches if they are in none of them.
type Condition struct {
	Fields []Field   `json:"fields"`
	Not    bool      `json:"not,omitempty"`
	In     [][]Range `json:"in,omitempty"`
	// Any is used instead of In: at least one of these bits of the single field
	// must be set.
	Any []byte `json:"any,omitempty"`
	// Mask are the bits of the single field that are compared with In; nil means
	// all.
	Mask []byte `json:"mask,omitempty"`
	// Set means that In are the elements of a set, which may expire.
	Set bool `json:"-"`
}
