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
}

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
	stateNew  = 1 << 3
	statusNAT = 1 << 5
)

// tcpSyn is the only flag of a connection's first packet (RFC 9293).
const tcpSyn = 0x02

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
		return p.To.Addr().AsSlice(), true
	case SourcePort:
		return port(p.From.Port()), p.From.Port() != 0
	case Port:
		return port(p.To.Port()), true
	case Protocol:
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
			return number(unix.RTN_LOCAL), true
		}
		return number(unix.RTN_UNICAST), true
	case State:
		return number(stateNew), true
	case Status:
		if p.Translated {
			return number(statusNAT), true
		}
		return number(0), true
	case Mark:
		return number(0), true
	case Flags:
		return []byte{tcpSyn}, p.Proto == model.TCP
	}
	return nil, false
}

// Holds says whether the condition holds for the packet.
func (c Condition) Holds(p Packet) Answer {
	values := make([][]byte, len(c.Fields))
	for i, f := range c.Fields {
		value, known := p.field(f)
		if !known {
			return Maybe
		}
		values[i] = value
	}
	if c.Mask != nil {
		values[0] = masked(values[0], c.Mask)
	}
	held := No
	if c.Any != nil {
		for i, b := range values[0] {
			if i < len(c.Any) && b&c.Any[i] != 0 {
				held = Yes
			}
		}
	} else if slices.ContainsFunc(c.In, func(tuple []Range) bool { return within(values, tuple) }) {
		held = Yes
	}
	if c.Not {
		return held.Not()
	}
	return held
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
