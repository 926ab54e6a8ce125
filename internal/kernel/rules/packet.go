package rules

import (
	"encoding/binary"
	"net/netip"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// Packet is the first packet of a flow, with the properties that rules check.
type Packet struct {
	Proto model.Proto
	From  netip.AddrPort
	To    netip.AddrPort
	// Senders, if it is valid, are the addresses of which From is one, or To of a reply: it is
	// unknown which.
	Senders netip.Prefix
	// AnyTo means that To only shows the family: it and the ports are unknown.
	AnyTo bool
	// In and Out are the names of the links; "" if there is none yet.
	In, Out string
	// Local means that To is an address of the host.
	Local bool
	// Behind means that From is an address of another host, to which the route leaves on the link In.
	Behind bool
	// Own means that From is an address of the host. If neither is set, it is unknown where From is.
	Own bool
	// Translated means that the destination was rewritten, SourceTranslated that the
	// source was.
	Translated, SourceTranslated bool
	// Mark is the packet's mark, CtMark its connection's.
	Mark, CtMark Bits
	// NoTrack means that connection tracking ignores the packet.
	NoTrack bool
	// Invalid means that connection tracking knows no connection of the packet, and
	// does not begin one with it.
	Invalid bool
	// Reply means that it is the first reply of the connection. The port in To is 0
	// if it is unknown.
	Reply bool
	// Established means that it is not the first packet of the flow but one of a
	// connection that is established.
	Established bool
	// Refusal means that the reply refuses the connection: for TCP with a reset, for UDP
	// with an ICMP error (RFC 1122, section 4.1.3.1).
	Refusal bool
	// Neighbour means that it is not a packet of the flow but a message of address
	// resolution between From and To.
	Neighbour Neighbour
	// TooBig means that it is not the first packet of the flow but the ICMP error
	// to its sender that a packet was too big (RFC 1191, RFC 8201).
	TooBig bool
	// ICMPError, if it is not 0, means that it is not a packet of the flow but an ICMP error of
	// this type about one, with any code.
	ICMPError byte
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

// isICMP reports whether the packet is an ICMP error about a packet of the flow.
func (p Packet) isICMP() bool {
	return p.TooBig || p.ICMPError != 0 || p.Refusal && p.Proto == model.UDP
}

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
	stateInvalid     = 1 << 0
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateNew         = 1 << 3
	stateNoTrack     = 1 << 6
	statusSeenReply  = 1 << 1
	statusAssured    = 1 << 2
	statusSourceNAT  = 1 << 4
	statusNAT        = 1 << 5
)

// The TCP flags of a connection's first packet, of its reply, of the client's next packet,
// and of a refusal (RFC 9293).
const (
	tcpSyn    = 0x02
	tcpSynAck = 0x12
	tcpAck    = 0x10
	tcpReset  = 0x14
)

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443, RFC 4861).
const (
	unreachable            = 3
	unreachable6           = 1
	timeExceeded           = 11
	parameterProblem       = 12
	portUnreachable        = 3 // codes of unreachable
	fragmentationNeeded    = 4
	portUnreachable6       = 4
	packetTooBig           = 2
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
)

var protocols = map[model.Proto]byte{model.TCP: unix.IPPROTO_TCP, model.UDP: unix.IPPROTO_UDP}

// linkName is the length of a link's name in nftables' comparisons, in bytes.
const linkName = unix.IFNAMSIZ

// field returns a field's bytes, and false if they are not known. unknown are the bits
// that are not known of a field that is partly known; nil means none.
func (p Packet) field(f Field) (value, unknown []byte, known bool) {
	number := func(n uint32) []byte { return native.AppendUint32(nil, n) }
	switch f {
	case State:
		return number(p.state()), nil, true
	case XTState:
		return number(p.xtState()), nil, true
	case Status:
		known := uint32(statusSeenReply | statusSourceNAT | statusNAT)
		if !p.Reply && !p.Established {
			known |= statusAssured
		}
		return number(p.status()), number(^known), !p.isICMP() // the status is that of the connection in the error
	case Mark:
		return big.AppendUint32(nil, p.Mark.Value), big.AppendUint32(nil, p.Mark.Unknown), true
	case CtMark:
		return big.AppendUint32(nil, p.CtMark.Value), big.AppendUint32(nil, p.CtMark.Unknown), true
	case Source, Destination:
		if p.Senders.IsValid() && (f == Destination) == p.Reply {
			return p.Senders.Masked().Addr().AsSlice(), hostBits(p.Senders), true
		}
	}
	value, known = p.wholeField(f)
	return value, nil, known
}

// wholeField returns a field that is wholly known or not known.
func (p Packet) wholeField(f Field) (value []byte, known bool) {
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	number := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	link := func(name string) []byte { return append([]byte(name), make([]byte, linkName-len(name))...) }
	switch f {
	case Source:
		return p.From.Addr().AsSlice(), p.From.Addr().IsValid()
	case Destination:
		return p.To.Addr().AsSlice(), p.To.Addr().IsValid() && !p.AnyTo
	case SourcePort:
		return port(p.From.Port()), !p.AnyTo && p.From.Port() != 0 && p.Neighbour == NoNeighbour
	case Port:
		return port(p.To.Port()), !p.AnyTo && p.To.Port() != 0 && p.Neighbour == NoNeighbour
	case Protocol:
		return []byte{p.protocol()}, true
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
		if p.Own {
			return number(unix.RTN_LOCAL), true
		}
		return number(unix.RTN_UNICAST), p.Behind
	case ReturnRoute:
		if p.Own && p.In != "lo" {
			return number(0), true
		}
		return number(1), p.Behind
	case Direction:
		if p.Reply {
			return []byte{1}, true
		}
		return []byte{0}, true
	case Flags:
		switch {
		case p.AnyTo && (p.Reply || p.Established):
			return nil, false
		case p.Refusal:
			return []byte{tcpReset}, p.Proto == model.TCP
		case p.Reply:
			return []byte{tcpSynAck}, p.Proto == model.TCP
		case p.Established:
			return []byte{tcpAck}, p.Proto == model.TCP
		}
		return []byte{tcpSyn}, p.Proto == model.TCP
	}
	return p.frame(f)
}

// hostBits returns the bits of addresses that a prefix leaves open.
func hostBits(p netip.Prefix) []byte {
	open := make([]byte, p.Addr().BitLen()/8)
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		open[i/8] |= 0x80 >> (i % 8)
	}
	return open
}

// protocol returns the number of the transport protocol.
func (p Packet) protocol() byte {
	switch {
	case p.Neighbour != NoNeighbour:
		return unix.IPPROTO_ICMPV6
	case p.isICMP():
		return p.icmp(unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
	}
	return protocols[p.Proto]
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
		switch {
		case p.ICMPError != 0:
			return []byte{p.ICMPError}, true
		case p.TooBig:
			return []byte{p.icmp(unreachable, packetTooBig)}, true
		case p.isICMP():
			return []byte{p.icmp(unreachable, unreachable6)}, true
		}
		return []byte{map[Neighbour]byte{Solicitation: neighbourSolicitation,
				Advertisement: neighbourAdvertisement}[p.Neighbour]},
			p.Neighbour != NoNeighbour && !p.isARP()
	case ICMPCode:
		switch {
		case p.ICMPError != 0:
			return nil, false
		case p.TooBig:
			return []byte{p.icmp(fragmentationNeeded, 0)}, true
		case p.isICMP():
			return []byte{p.icmp(portUnreachable, portUnreachable6)}, true
		}
		return []byte{0}, p.Neighbour != NoNeighbour && !p.isARP()
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

// untracked reports whether the packet has no connection, which also Neighbor Discovery
// has not.
func (p Packet) untracked() bool { return p.NoTrack || p.Invalid || p.Neighbour != NoNeighbour }

// state returns the state in connection tracking.
func (p Packet) state() uint32 {
	switch {
	case p.NoTrack:
		return stateNoTrack
	case p.Invalid:
		return stateInvalid
	case p.Neighbour != NoNeighbour:
		return stateNoTrack
	case p.isICMP():
		return stateRelated
	case p.Reply, p.Established:
		return stateEstablished
	}
	return stateNew
}

// xtState returns the state as iptables defines it (net/netfilter/xt_conntrack.c).
func (p Packet) xtState() uint32 {
	state := p.state()
	if state == stateNoTrack {
		return xtUntracked
	}
	if p.Translated && !p.Invalid {
		state |= xtDestinationNAT
	}
	if p.SourceTranslated && !p.Invalid {
		state |= xtSourceNAT
	}
	return state
}

func (p Packet) status() uint32 {
	n := uint32(0)
	for bit, set := range map[uint32]bool{statusNAT: p.Translated, statusSourceNAT: p.SourceTranslated,
		statusSeenReply: p.Reply || p.Established} {
		if set {
			n |= bit
		}
	}
	return n
}

// String returns the answer as a word.
func (a Answer) String() string { return [...]string{"no", "maybe", "yes"}[a] }

// MarshalText implements encoding.TextMarshaler.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
