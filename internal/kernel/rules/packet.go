package rules

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Packet is the first packet of a flow, with the properties that rules check.
type Packet struct {
	Proto model.Proto
	From  netip.AddrPort
	To    netip.AddrPort
	// In and Out are the names of the links; "" if there is none yet.
	In, Out string
	// Local means that To is an address of the host.
	Local bool
	// Behind means that From is an address of another host, to which the route leaves on the link In.
	Behind bool
	// Translated means that the destination was rewritten.
	Translated bool
	// Mark is the packet's mark, CtMark its connection's.
	Mark, CtMark Bits
	// NoTrack means that connection tracking ignores the packet.
	NoTrack bool
	// Reply means that it is the first reply of the connection. The port in To is 0
	// if it is unknown.
	Reply bool
	// Neighbour means that it is not a packet of the flow but a message of address
	// resolution between From and To.
	Neighbour Neighbour
	// TooBig means that it is not the first packet of the flow but the ICMP error
	// to its sender that a packet was too big (RFC 1191, RFC 8201).
	TooBig bool
	// HardFrom and HardTo are the Ethernet addresses of the frame; nil if unknown.
	HardFrom, HardTo []byte
}

// Neighbour is a message of address resolution: ARP for IPv4, Neighbor Discovery
// (RFC 4861) for IPv6.
type Neighbour byte

// The messages of address resolution.
const (
	NoNeighbour Neighbour = iota
	Solicitation
	Advertisement
)

// isARP reports whether the packet is an ARP message.
func (p Packet) isARP() bool { return p.Neighbour != NoNeighbour && p.To.Addr().Is4() }

// Answer is whether a condition matches.
type Answer int

// The answers. Maybe means that something is not supported or unknown.
const (
	No Answer = iota
	Maybe
	Yes
)

// Not returns the opposite.
func (a Answer) Not() Answer { return Yes - a }

// Conntrack's states (as masks), and the bits of its status for a seen reply and
// for a rewritten destination (linux/netfilter/nf_conntrack_common.h).
const (
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
	stateNoTrack     = 1 << 6
	statusSeenReply  = 1 << 1
	statusNAT        = 1 << 5
)

// The TCP flags of a connection's first packet and of its reply (RFC 9293).
const (
	tcpSyn    = 0x02
	tcpSynAck = 0x12
)

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443, RFC 4861).
const (
	unreachable            = 3
	packetTooBig           = 2
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
)

var protocols = map[model.Proto]byte{model.TCP: unix.IPPROTO_TCP, model.UDP: unix.IPPROTO_UDP}

// linkName is the length of a link's name in nftables' comparisons, in bytes.
const linkName = unix.IFNAMSIZ

// field returns a field's bytes, and whether they are known.
func (p Packet) field(f Field) (value []byte, known bool) {
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	number := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	link := func(name string) []byte { return append([]byte(name), make([]byte, linkName-len(name))...) }
	switch f {
	case Source:
		return p.From.Addr().AsSlice(), p.From.Addr().IsValid()
	case Destination:
		return p.To.Addr().AsSlice(), p.To.Addr().IsValid()
	case SourcePort:
		return port(p.From.Port()), p.From.Port() != 0 && p.Neighbour == NoNeighbour
	case Port:
		return port(p.To.Port()), p.To.Port() != 0 && p.Neighbour == NoNeighbour
	case Protocol:
		if p.Neighbour != NoNeighbour {
			return []byte{unix.IPPROTO_ICMPV6}, !p.isARP()
		}
		if p.TooBig {
			return []byte{p.icmp(unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)}, true
		}
		return []byte{protocols[p.Proto]}, true
	case Family:
		if p.To.Addr().Is4() {
			return []byte{unix.NFPROTO_IPV4}, true
		}
		return []byte{unix.NFPROTO_IPV6}, true
	case InLink:
		return link(p.In), true
	case OutLink:
		return link(p.Out), true
	case DestinationType:
		if p.Local {
			return number(unix.RTN_LOCAL), p.Neighbour == NoNeighbour
		}
		return number(unix.RTN_UNICAST), p.Neighbour == NoNeighbour
	case SourceType:
		return number(unix.RTN_UNICAST), p.Behind
	case ReturnRoute:
		return number(1), p.Behind
	case State:
		return number(p.state()), true
	case Status:
		return number(p.status()), !p.TooBig // the status is that of the connection in the error
	case Mark:
		return big.AppendUint32(nil, p.Mark.Value), p.Mark.Known()
	case CtMark:
		return big.AppendUint32(nil, p.CtMark.Value), p.CtMark.Known()
	case Flags:
		if p.Reply {
			return []byte{tcpSynAck}, p.Proto == model.TCP
		}
		return []byte{tcpSyn}, p.Proto == model.TCP
	}
	return p.frame(f)
}

// frame returns fields that are not part of IP, TCP or UDP.
func (p Packet) frame(f Field) (value []byte, known bool) {
	switch f {
	case EtherType:
		kind := uint16(unix.ETH_P_IPV6)
		switch {
		case p.isARP():
			kind = unix.ETH_P_ARP
		case p.To.Addr().Is4():
			kind = unix.ETH_P_IP
		}
		return big.AppendUint16(nil, kind), true
	case EtherSource:
		return p.HardFrom, p.HardFrom != nil
	case EtherDestination:
		return p.HardTo, p.HardTo != nil
	case ARPOperation:
		return big.AppendUint16(nil, uint16(p.Neighbour)), p.isARP()
	case ICMPType:
		if p.TooBig {
			return []byte{p.icmp(unreachable, packetTooBig)}, true
		}
		return []byte{map[Neighbour]byte{Solicitation: neighbourSolicitation,
				Advertisement: neighbourAdvertisement}[p.Neighbour]},
			p.Neighbour != NoNeighbour && !p.isARP()
	}
	return nil, false
}

// icmp returns the number for the packet's address family.
func (p Packet) icmp(v4, v6 byte) byte {
	if p.To.Addr().Is4() {
		return v4
	}
	return v6
}

// state returns the state in connection tracking, which ignores Neighbor Discovery.
func (p Packet) state() uint32 {
	switch {
	case p.NoTrack || p.Neighbour != NoNeighbour:
		return stateNoTrack
	case p.TooBig:
		return stateRelated
	case p.Reply:
		return stateEstablished
	}
	return stateNew
}

func (p Packet) status() uint32 {
	n := uint32(0)
	if p.Translated {
		n |= statusNAT
	}
	if p.Reply {
		n |= statusSeenReply
	}
	return n
}

// Matches returns whether the condition matches the packet.
func (c Condition) Matches(p Packet) Answer {
	values := make([][]byte, len(c.Fields))
	for i, f := range c.Fields {
		if p.lacks(f) {
			return No
		}
		if answer, ok := c.clientPortAnswer(f, p); ok {
			return answer
		}
		value, known := p.field(f)
		if !known && !c.ignoresUnknownBits(f, p) {
			return Maybe
		}
		values[i] = value
	}
	if c.Mask != nil {
		values[0] = masked(values[0], c.Mask)
	}
	matches := No
	if c.Any != nil {
		for i, b := range values[0] {
			if i < len(c.Any) && b&c.Any[i] != 0 {
				matches = Yes
			}
		}
	} else if slices.ContainsFunc(c.In, func(tuple []Range) bool { return within(values, tuple) }) {
		matches = Yes
	}
	if c.Not {
		return matches.Not()
	}
	return matches
}

// lacks reports whether the packet does not have the field; then no condition on it
// can match. ARP has no transport protocol, and ICMP has neither ports nor flags.
func (p Packet) lacks(f Field) bool {
	if p.TooBig && (f == SourcePort || f == Port || f == Flags) {
		return true
	}
	return p.isARP() && (f == Protocol || f == SourcePort || f == Port || f == ICMPType || f == Flags)
}

// clientPortAnswer returns the answer for a condition on the client's port if that
// port is unknown. It assumes that clients do not use privileged ports.
func (c Condition) clientPortAnswer(f Field, p Packet) (Answer, bool) {
	unknown := f == Port && p.Reply && p.To.Port() == 0 || f == SourcePort && !p.Reply && p.From.Port() == 0
	if !unknown || p.Neighbour != NoNeighbour || len(c.Fields) != 1 || c.In == nil || c.Mask != nil {
		return Maybe, false
	}
	for _, tuple := range c.In {
		if ports, ok := tuple[0].Ports(); !ok || ports.Last >= firstClientPort {
			return Maybe, false
		}
	}
	if c.Not {
		return Yes, true
	}
	return No, true
}

// firstClientPort is the first port that is not privileged.
const firstClientPort = 1024

// ignoresUnknownBits reports whether the condition does not check any of a mark's
// unknown bits.
func (c Condition) ignoresUnknownBits(f Field, p Packet) bool {
	mask := c.Mask
	if c.Any != nil {
		mask = c.Any
	}
	if len(mask) != 4 || f != Mark && f != CtMark {
		return false
	}
	unknown := p.Mark.Unknown
	if f == CtMark {
		unknown = p.CtMark.Unknown
	}
	return big.Uint32(mask)&unknown == 0
}

func masked(value, mask []byte) []byte {
	out := make([]byte, min(len(value), len(mask)))
	for i := range out {
		out[i] = value[i] & mask[i]
	}
	return out
}

// within reports whether each value is in its range. An address of another family
// is never in a range.
func within(values [][]byte, tuple []Range) bool {
	for i, r := range tuple {
		if len(values[i]) != len(r.First) || bytes.Compare(values[i], r.First) < 0 ||
			bytes.Compare(values[i], r.Last) > 0 {
			return false
		}
	}
	return true
}

// Matches returns whether all conditions match the packet.
func (r Rule) Matches(p Packet) Answer {
	answer := Yes
	if r.Partial {
		answer = Maybe
	}
	for _, c := range r.Conditions {
		answer = min(answer, c.Matches(p))
	}
	return answer
}

// String returns the answer as a word.
func (a Answer) String() string { return [...]string{"no", "maybe", "yes"}[a] }

// MarshalText implements encoding.TextMarshaler.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
