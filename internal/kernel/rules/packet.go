package rules

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Packet is the first of a flow, as far as rules look at it.
type Packet struct {
	Proto model.Proto
	From  netip.AddrPort
	To    netip.AddrPort
	// In and Out are the names of the links; empty where there is none yet.
	In, Out string
	// Local says that To is an address of the host itself.
	Local bool
	// Translated says that its destination was rewritten.
	Translated bool
	// Mark is the packet's mark, and CtMark that of its connection.
	Mark, CtMark Bits
	// NoTrack says that connection tracking leaves the packet alone.
	NoTrack bool
	// Reply says that it is the first answer of the connection. The port in To may
	// then be unknown, and is 0.
	Reply bool
	// Neighbour says that it is a message of address resolution between From and
	// To, and not a packet of the flow.
	Neighbour Neighbour
	// TooBig says that it is not the first of the flow, but the ICMP error to its
	// sender that a packet was too big (RFC 1191, RFC 8201).
	TooBig bool
	// HardFrom and HardTo are the Ethernet addresses of the frame; nil where they
	// are not known.
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

// isARP reports whether the packet is one of ARP, and not of IP.
func (p Packet) isARP() bool { return p.Neighbour != NoNeighbour && p.To.Addr().Is4() }

// Answer is what can be told of a condition.
type Answer int

// The answers; Maybe where something is not understood or not known.
const (
	No Answer = iota
	Maybe
	Yes
)

// Not is the opposite.
func (a Answer) Not() Answer { return Yes - a }

// Numbers of protocols, of conntrack's states (as masks) and the bit of its
// status that says that the destination was rewritten
// (linux/netfilter/nf_conntrack_common.h).
const (
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
	stateNoTrack     = 1 << 6
	statusSeenReply  = 1 << 1
	statusNAT        = 1 << 5
)

// The flags of a connection's first packet and of its answer (RFC 9293).
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

// linkName is the length of a link's name as nftables compares it.
const linkName = unix.IFNAMSIZ

// field returns the bytes that a rule sees.
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
	case State:
		return number(p.state()), true
	case Status:
		return number(p.status()), !p.TooBig // those of the connection that it is about
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

// frame returns the bytes of what is outside of a packet of TCP or UDP.
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
		return []byte{map[Neighbour]byte{Solicitation: neighbourSolicitation, Advertisement: neighbourAdvertisement}[p.Neighbour]},
			p.Neighbour != NoNeighbour && !p.isARP()
	}
	return nil, false
}

// icmp returns the number for the packet's family.
func (p Packet) icmp(v4, v6 byte) byte {
	if p.To.Addr().Is4() {
		return v4
	}
	return v6
}

// state is that of connection tracking. It leaves Neighbor Discovery alone.
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

// Holds says whether the condition holds for the packet.
func (c Condition) Holds(p Packet) Answer {
	values := make([][]byte, len(c.Fields))
	for i, f := range c.Fields {
		if p.lacks(f) {
			return No
		}
		if answer, ok := c.aboutClientPort(f, p); ok {
			return answer
		}
		value, known := p.field(f)
		if !known && !c.spares(f, p) {
			return Maybe
		}
		values[i] = value
	}
	if c.Mask != nil {
		values[0] = masked(values[0], c.Mask)
	}
	inUse := No
	if c.Any != nil {
		for i, b := range values[0] {
			if i < len(c.Any) && b&c.Any[i] != 0 {
				inUse = Yes
			}
		}
	} else if slices.ContainsFunc(c.In, func(tuple []Range) bool { return within(values, tuple) }) {
		inUse = Yes
	}
	if c.Not {
		return inUse.Not()
	}
	return inUse
}

// lacks reports whether the packet has no such field, which no condition on it
// survives: ARP has no transport protocol, and ICMP has neither ports nor flags.
func (p Packet) lacks(f Field) bool {
	if p.TooBig && (f == SourcePort || f == Port || f == Flags) {
		return true
	}
	return p.isARP() && (f == Protocol || f == SourcePort || f == Port || f == ICMPType || f == Flags)
}

// aboutClientPort answers a condition on the client's port where that is not
// known: an ordinary client's is none of the privileged ports.
func (c Condition) aboutClientPort(f Field, p Packet) (Answer, bool) {
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

// spares reports whether the condition looks at none of the unknown bits of a
// mark.
func (c Condition) spares(f Field, p Packet) bool {
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

// within reports whether each value is in its range. An address of the other
// family is in none.
func within(values [][]byte, tuple []Range) bool {
	for i, r := range tuple {
		if len(values[i]) != len(r.First) || bytes.Compare(values[i], r.First) < 0 || bytes.Compare(values[i], r.Last) > 0 {
			return false
		}
	}
	return true
}

// Holds says whether all conditions hold for the packet.
func (r Rule) Holds(p Packet) Answer {
	answer := Yes
	if r.Partial {
		answer = Maybe
	}
	for _, c := range r.Conditions {
		answer = min(answer, c.Holds(p))
	}
	return answer
}

// String is the answer in a word.
func (a Answer) String() string { return [...]string{"no", "maybe", "yes"}[a] }

// MarshalText implements encoding.TextMarshaler.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
