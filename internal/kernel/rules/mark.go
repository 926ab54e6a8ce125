package rules

import "fmt"

// Bits is a 32-bit mark, some bits of which may be unknown. The zero value is the
// known mark 0.
type Bits struct {
	Value   uint32 `json:"value"`
	Unknown uint32 `json:"unknown,omitempty"`
}

// Known reports whether all bits are known.
func (b Bits) Known() bool { return b.Unknown == 0 }

// either returns a mark that is one of two: bits that differ become unknown.
func (b Bits) either(o Bits) Bits {
	unknown := b.Unknown | o.Unknown | (b.Value ^ o.Value)
	return Bits{b.Value &^ unknown, unknown}
}

// String returns the mark in hexadecimal.
func (b Bits) String() string {
	if b.Unknown != 0 {
		return fmt.Sprintf("0x%x (unknown bits 0x%x)", b.Value, b.Unknown)
	}
	return fmt.Sprintf("0x%x", b.Value)
}

// Assign is a statement that sets a mark. The new value is (packet's mark & Mark) ^
// (connection's mark & CtMark) ^ Xor. Every statement of nftables, MARK and
// CONNMARK that sets, saves or restores a mark with constant masks has this form.
type Assign struct {
	// To is Mark or CtMark.
	To Field `json:"to"`
	// Mark and CtMark mask the two sources.
	Mark   uint32 `json:"mark,omitempty"`
	CtMark uint32 `json:"ctMark,omitempty"`
	Xor    uint32 `json:"xor,omitempty"`
	// Unknown means that the value cannot be computed from the rule.
	Unknown bool `json:"unknown,omitempty"`
}

const allBits = ^uint32(0)

// and returns the statement with a constant mask and exclusive or applied to its
// value.
func (a Assign) and(mask, xor uint32) Assign {
	a.Mark, a.CtMark, a.Xor = a.Mark&mask, a.CtMark&mask, a.Xor&mask^xor
	return a
}

// value returns the mark that the statement sets for a packet.
func (a Assign) value(p Packet) Bits {
	if a.Unknown {
		return Bits{Unknown: allBits}
	}
	unknown := p.Mark.Unknown&a.Mark | p.CtMark.Unknown&a.CtMark
	return Bits{(p.Mark.Value&a.Mark ^ p.CtMark.Value&a.CtMark ^ a.Xor) &^ unknown, unknown}
}

// assign sets the packet's marks. If it is not certain that the rule matches, the
// bits that would change become unknown.
func (p *Packet) assign(all []Assign, certain bool) {
	for _, a := range all {
		mark := &p.Mark
		if a.To == CtMark {
			mark = &p.CtMark
			if p.untracked() {
				continue // there is no connection and so no connection mark
			}
		}
		value := a.value(*p)
		if !certain {
			value = value.either(*mark)
		}
		*mark = value
	}
}

// String formats the statement as nft does.
func (a Assign) String() string {
	text := string(a.To) + " set "
	switch {
	case a.Unknown:
		return text + "…"
	case a.Mark == 0 && a.CtMark == 0:
		return text + fmt.Sprintf("0x%x", a.Xor)
	}
	source, mask := "", allBits
	switch {
	case a.Mark != 0 && a.CtMark != 0:
		source = fmt.Sprintf("meta mark & 0x%x ^ ct mark & 0x%x", a.Mark, a.CtMark)
	case a.Mark != 0:
		source, mask = string(Mark), a.Mark
	default:
		source, mask = string(CtMark), a.CtMark
	}
	if mask != allBits {
		source += fmt.Sprintf(" & 0x%x", mask)
	}
	if a.Xor != 0 {
		source += fmt.Sprintf(" ^ 0x%x", a.Xor)
	}
	return text + source
}
