package rules

import (
	"bytes"
	"slices"
)

// Matches returns whether the condition matches the packet.
func (c Condition) Matches(p Packet) Answer {
	if slices.ContainsFunc(c.Fields, p.lacks) {
		return No
	}
	answer := No
	if c.Any != nil && len(c.Fields) > 0 {
		answer = c.anyBit(p)
	}
	for i := 0; i < len(c.In) && answer != Yes; i++ {
		answer = max(answer, c.within(p, c.In[i]))
	}
	if c.Not {
		return answer.Not()
	}
	return answer
}

// anyBit returns whether one of the bits of the single field is set.
func (c Condition) anyBit(p Packet) Answer {
	value, unknown, known := p.field(c.Fields[0])
	switch {
	case !known:
		return Maybe
	case !zero(masked(masked(value, c.Any), inverted(unknown, len(value)))):
		return Yes
	case !zero(masked(unknown, c.Any)):
		return Maybe
	}
	return No
}

// within returns whether all fields are in their ranges.
func (c Condition) within(p Packet, tuple []Range) Answer {
	if len(tuple) > len(c.Fields) {
		return Maybe
	}
	answer := Yes
	for i := 0; i < len(tuple) && answer != No; i++ {
		answer = min(answer, c.inRange(p, c.Fields[i], tuple[i]))
	}
	return answer
}

// inRange returns whether a field is in a range. An address of another family is in
// none.
func (c Condition) inRange(p Packet, f Field, r Range) Answer {
	if answer, ok := p.clientPort(f, r); ok && c.Mask == nil {
		return answer
	}
	value, unknown, known := p.field(f)
	if !known {
		return Maybe
	}
	if c.Mask != nil {
		value, unknown = masked(value, c.Mask), masked(unknown, c.Mask)
	}
	sure := inverted(unknown, len(value))
	switch {
	case len(value) != len(r.First):
		return No
	case zero(unknown) && bytes.Compare(value, r.First) >= 0 && bytes.Compare(value, r.Last) <= 0:
		return Yes
	case zero(unknown), bytes.Equal(r.First, r.Last) && !bytes.Equal(masked(value, sure), masked(r.First, sure)):
		return No
	case (f == Source || f == Destination) && bytes.Compare(value, r.First) >= 0 &&
		bytes.Compare(highest(value, unknown), r.Last) <= 0:
		return Yes
	case (f == Source || f == Destination) && (bytes.Compare(highest(value, unknown), r.First) < 0 ||
		bytes.Compare(value, r.Last) > 0):
		return No
	}
	return Maybe
}

// highest returns the highest value if the unknown bits of the value are 0.
func highest(value, unknown []byte) []byte {
	out := bytes.Clone(value)
	for i := range out {
		if i < len(unknown) {
			out[i] |= unknown[i]
		}
	}
	return out
}

// lacks reports whether the packet does not have the field; then no condition on it
// can match. No packet here is a fragment. ARP has no transport protocol, ICMP has neither ports nor flags, and a
// packet without a connection has no properties of one but its state.
func (p Packet) lacks(f Field) bool {
	switch f {
	case FragmentOffset:
		return true
	case SourcePort, Port, Flags:
		return p.isICMP() || p.isARP()
	case Protocol:
		return p.isARP()
	case ICMPType, ICMPCode:
		return p.isARP() || !p.isICMP() && p.Neighbour == NoNeighbour
	case Status, CtMark, Direction:
		return p.untracked()
	}
	return false
}

// clientPort returns whether the port of the client is in a range, if the port is not
// known. It assumes that clients do not use privileged ports.
func (p Packet) clientPort(f Field, r Range) (Answer, bool) {
	if p.AnyTo {
		return Maybe, false
	}
	unknown := f == Port && p.Reply && p.To.Port() == 0 || f == SourcePort && !p.Reply && p.From.Port() == 0
	ports, ok := r.Ports()
	switch {
	case !unknown || !ok || p.Neighbour != NoNeighbour:
		return Maybe, false
	case ports.Last < firstClientPort:
		return No, true
	case ports.First <= firstClientPort && ports.Last == maxPort:
		return Yes, true
	}
	return Maybe, true
}

// firstClientPort is the first port that is not privileged, and maxPort the last port.
const firstClientPort, maxPort = 1024, 65535

// inverted returns the other bits of a mask; all of them if it is nil.
func inverted(mask []byte, length int) []byte {
	out := make([]byte, length)
	for i := range out {
		out[i] = 0xff
		if i < len(mask) {
			out[i] = ^mask[i]
		}
	}
	return out
}

func masked(value, mask []byte) []byte {
	out := make([]byte, min(len(value), len(mask)))
	for i := range out {
		out[i] = value[i] & mask[i]
	}
	return out
}

// Matches returns whether all conditions match the packet.
func (r Rule) Matches(p Packet) Answer {
	answer := Yes
	if r.Partial {
		answer = Maybe
	}
	for i := 0; i < len(r.Conditions) && answer != No; i++ {
		answer = min(answer, r.Conditions[i].Matches(p))
	}
	return answer
}

// mayMatch reports whether the rule may match the packet when elements have expired.
func (r Rule) mayMatch(p Packet) bool {
	return !slices.ContainsFunc(r.Conditions, func(c Condition) bool { return !c.Set && c.Matches(p) == No })
}
