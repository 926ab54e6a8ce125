package rules

import (
	"bytes"
	"slices"

	"github.com/google/nftables/expr"
)

// bitwise applies a mask to a register. Shifts, and operations on two registers
// that newer kernels have, come without a mask; their result is unknown.
func (d *decoder) bitwise(e *expr.Bitwise) {
	r := d.registers[slot(e.SourceRegister)]
	switch {
	case len(e.Mask) == 0:
		r = register{what: r.name()}
	case !zero(e.Xor):
		r.what, r.field = r.name(), ""
	}
	if r.mask = e.Mask; len(e.Mask) == 4 && len(e.Xor) == 4 && r.assign != nil {
		a := r.assign.and(native.Uint32(e.Mask), native.Uint32(e.Xor))
		r.assign = &a
	} else {
		r.assign = nil
	}
	r.mapped = false
	d.registers[slot(e.DestRegister)] = r
}

func (d *decoder) compare(e *expr.Cmp) {
	r := d.registers[slot(e.Register)]
	equal := e.Op == expr.CmpOpEq || e.Op == expr.CmpOpNeq
	flags := r.field == Flags || r.field == Status || r.field == State
	switch {
	case equal && r.parts != nil && r.mask == nil:
		d.compareParts(r, e)
	case equal && r.kindOf != "" && r.mask == nil && len(e.Data) == r.width:
		d.compareKind(r, e)
	case r.field == "":
		d.unread(r.name())
	case equal && r.mask != nil && zero(e.Data) && r.field != Flags && (flags || e.Op == expr.CmpOpNeq):
		d.add(Condition{Fields: []Field{r.field}, Any: d.canonical(r, r.mask), Not: e.Op == expr.CmpOpEq})
	case equal && r.mask != nil && (flags || !prefix(r.mask) || r.isMark()):
		data := d.canonical(r, e.Data)
		d.add(Condition{Fields: []Field{r.field}, Mask: d.canonical(r, r.mask), Not: e.Op == expr.CmpOpNeq,
			In: [][]Range{{{data, data}}}})
	case equal:
		last := slices.Clone(e.Data)
		for i := range last {
			if i < len(r.mask) {
				last[i] |= ^r.mask[i]
			}
		}
		d.condition(r, e.Op == expr.CmpOpNeq, Range{e.Data, last})
	default:
		d.order(r, e)
	}
}

// order adds the condition that a field is less or greater than a value.
func (d *decoder) order(r register, e *expr.Cmp) {
	switch {
	case r.mask != nil || r.isMark() && !r.swapped || r.field == State || r.field == Status:
		d.unread(r.name())
	case e.Op == expr.CmpOpGte:
		d.condition(r, false, Range{e.Data, bytes.Repeat([]byte{0xff}, len(e.Data))})
	case e.Op == expr.CmpOpGt:
		d.condition(r, true, Range{make([]byte, len(e.Data)), e.Data})
	case e.Op == expr.CmpOpLte:
		d.atMost(r, e.Data)
	case e.Op == expr.CmpOpLt:
		d.condition(r, true, Range{e.Data, bytes.Repeat([]byte{0xff}, len(e.Data))})
	default:
		d.unread(r.name())
	}
}

// compareParts adds the conditions on the fields of a joined load: one for each, or one
// for all if the load must differ.
func (d *decoder) compareParts(r register, e *expr.Cmp) {
	all := d.tuple(r.parts, e.Data, e.Data, 1)
	if e.Op == expr.CmpOpNeq {
		d.add(Condition{Fields: fieldsOf(r.parts), Not: true, In: [][]Range{all}})
	}
	for i, p := range r.parts {
		switch {
		case p.field == Unread:
			d.unread(p.what)
		case e.Op == expr.CmpOpEq && i < len(all):
			d.add(Condition{Fields: []Field{p.field}, In: [][]Range{{all[i]}}})
		}
	}
}

// add adds a condition. A condition after a statement does not apply to that
// statement, so the statement may be executed although the condition does not
// match.
func (d *decoder) add(c Condition) {
	if len(d.rule.Assigns) > 0 {
		d.unread("a condition after a statement")
	}
	d.rule.Conditions = append(d.rule.Conditions, c)
}

// canonical converts a mark to network byte order, as conditions store it, unless
// the rule has already done so.
func (d *decoder) canonical(r register, value []byte) []byte {
	if !r.isMark() || r.swapped {
		return value
	}
	return inNetworkOrder(value)
}

func inNetworkOrder(mark []byte) []byte {
	if len(mark) != 4 {
		return mark
	}
	return big.AppendUint32(nil, native.Uint32(mark))
}

// prefix reports whether all set bits of a mask are at its beginning.
func prefix(mask []byte) bool {
	ended := false
	for _, b := range mask {
		for bit := 7; bit >= 0; bit-- {
			set := b>>bit&1 == 1
			if set && ended {
				return false
			}
			ended = ended || !set
		}
	}
	return true
}

// atMost sets the end of the range that the previous condition has begun, or adds a
// range that begins at 0.
func (d *decoder) atMost(r register, last []byte) {
	if n := len(d.rule.Conditions); n > 0 && r.field != "" &&
		slices.Equal(d.rule.Conditions[n-1].Fields, []Field{r.field}) &&
		!d.rule.Conditions[n-1].Not && len(d.rule.Conditions[n-1].In) == 1 &&
		!slices.ContainsFunc(d.rule.Conditions[n-1].In[0][0].Last, func(b byte) bool { return b != 0xff }) {
		d.rule.Conditions[n-1].In[0][0].Last = d.whole(r.part(), Range{last, last}).Last
		return
	}
	d.condition(r, false, Range{make([]byte, len(last)), last})
}

// condition adds a condition on a single field.
func (d *decoder) condition(r register, not bool, in Range) {
	if r.field == "" {
		d.unread(r.name())
		return
	}
	d.add(Condition{Fields: []Field{r.field}, Not: not, In: [][]Range{{d.whole(r.part(), in)}}})
}

// whole extends a range of a field's first bytes to the whole field, and converts
// link indices to names.
func (d *decoder) whole(r part, in Range) Range {
	if (r.field == InLink || r.field == OutLink) && r.width == 4 && len(in.First) >= 4 {
		name := make([]byte, linkName)
		copy(name, d.links.name(native.Uint32(in.First)))
		return Range{name, name}
	}
	switch {
	case r.field == Unread:
		return in
	case r.native:
		in = Range{inNetworkOrder(in.First), inNetworkOrder(in.Last)}
	}
	out := Range{make([]byte, r.width), bytes.Repeat([]byte{0xff}, r.width)}
	if (r.field == InLink || r.field == OutLink) && bytes.IndexByte(in.Last, 0) >= 0 {
		clear(out.Last) // iptables includes the final NUL, so the name ends here
	}
	copy(out.First, in.First)
	copy(out.Last, in.Last)
	return out
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }
