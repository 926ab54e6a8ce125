package rules

import (
	"bytes"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// lookup adds a condition, or prepares one rule per element of a map.
func (d *decoder) lookup(e *expr.Lookup) {
	elements, err := d.sets(e.SetName)
	isCatchAll := func(e nftables.SetElement) bool { return len(e.Key) == 0 }
	if err != nil || slices.ContainsFunc(elements, isCatchAll) {
		d.unread("set " + e.SetName)
		if e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT {
			d.other("map " + e.SetName)
		}
		return
	}
	fields := d.concatenation(slot(e.SourceRegister), elements)
	if e.IsDestRegSet {
		d.lookupMap(e, elements, fields)
		return
	}
	if fields == nil && len(elements) > 0 { // a field that is not supported
		d.unread(d.registers[slot(e.SourceRegister)].name())
		return
	}
	c := Condition{Fields: fieldsOf(fields), Not: e.Invert, In: [][]Range{}, Set: true}
	for _, r := range ranges(elements) {
		c.In = append(c.In, d.tuple(fields, r.Key, r.last, 4))
	}
	if c.Fields == nil { // the set is empty
		c.Fields = []Field{Protocol}
	}
	d.add(c)
	d.rule.Unread = append(d.rule.Unread, unreadOf(fields)...)
}

// unreadOf returns what of a key is not supported.
func unreadOf(fields []part) (names []string) {
	for _, f := range fields {
		if f.field == Unread {
			names = append(names, f.what)
		}
	}
	return names
}

// lookupMap prepares one rule per element of a map.
func (d *decoder) lookupMap(e *expr.Lookup, elements []nftables.SetElement, fields []part) {
	switch {
	case fields == nil && len(elements) > 0:
		d.unread(d.registers[slot(e.SourceRegister)].name())
	case d.branches != nil:
		d.unread("a second map")
	case len(d.rule.Assigns) > 0:
		d.unread("a map after a statement")
	}
	d.rule.Unread = append(d.rule.Unread, unreadOf(fields)...)
	d.branches, d.fields = elements, fields
	d.looked = d.rule
	if d.verdicts = e.DestRegister == unix.NFT_REG_VERDICT; !d.verdicts {
		d.at = slot(e.DestRegister)
		d.registers[d.at] = register{mapped: true}
	}
	if elements == nil {
		d.branches = []nftables.SetElement{}
	}
}

// concatenation returns the fields in the registers from at on, as many as the
// elements' keys have. It returns nil if it does not know where one of them ends.
func (d *decoder) concatenation(at uint32, elements []nftables.SetElement) []part {
	if len(elements) == 0 {
		return nil
	}
	var fields []part
	known := false
	for left := len(elements[0].Key); left > 0; {
		r := d.registers[at]
		p := r.part()
		switch {
		case r.size <= 0 || len(r.parts) > 1:
			return nil
		case r.field == "" || r.mask != nil:
			p.field, p.what = Unread, r.name()
		default:
			known = true
		}
		fields = append(fields, p)
		steps := (r.size + 3) / 4
		at += uint32(steps)
		left -= steps * 4
	}
	if !known {
		return nil
	}
	return fields
}

// part returns the field in the register.
func (r register) part() part {
	return part{field: r.field, width: r.width, size: r.size, native: r.isMark() && !r.swapped, what: r.what}
}

func fieldsOf(parts []part) []Field {
	var fields []Field
	for _, p := range parts {
		fields = append(fields, p.field)
	}
	return fields
}

// element is an element of a set. If the set has intervals, last is the end of its
// interval.
type element struct {
	nftables.SetElement
	last []byte
}

// ranges joins the two ends of intervals. The kernel returns them as separate
// elements, in descending order, unless the key is a concatenation. The second
// element is the first key after the interval.
func ranges(elements []nftables.SetElement) []element {
	var found []element
	ends := slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return e.IntervalEnd })
	list := slices.Clone(elements)
	if ends {
		slices.SortStableFunc(list, func(a, b nftables.SetElement) int {
			if order := bytes.Compare(a.Key, b.Key); order != 0 || a.IntervalEnd == b.IntervalEnd {
				return order
			}
			return map[bool]int{true: -1, false: 1}[a.IntervalEnd] // of adjacent intervals
		})
	}
	for i, e := range list {
		last := e.Key
		switch {
		case e.IntervalEnd:
			continue
		case len(e.KeyEnd) > 0:
			last = e.KeyEnd
		case ends && i+1 < len(list):
			last = before(list[i+1].Key)
		case ends:
			last = bytes.Repeat([]byte{0xff}, len(e.Key))
		}
		found = append(found, element{e, last})
	}
	return found
}

// before returns the key minus one.
func before(key []byte) []byte {
	out := slices.Clone(key)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]--
		if out[i] != 0xff {
			break
		}
	}
	return out
}

// tuple splits the first and the last key into the ranges of the fields. Each field
// begins at a multiple of step bytes.
func (d *decoder) tuple(fields []part, first, last []byte, step int) []Range {
	var parts []Range
	at := 0
	for _, f := range fields {
		n := min(f.size, len(first)-at, len(last)-at)
		if n < 0 {
			break
		}
		parts = append(parts, d.whole(f, Range{first[at : at+n], last[at : at+n]}))
		at += (f.size + step - 1) / step * step
	}
	return parts
}

// branched returns one rule per element of the map. A verdict ends the rule at the lookup, unless it is continue
// (nft_do_chain).
func (d *decoder) branched() []Rule {
	var all []Rule
	for _, e := range ranges(d.branches) {
		r, v := d.rule, elementVerdict(e.SetElement)
		if d.verdicts && v != nil && v.Kind != expr.VerdictContinue {
			r = d.looked
		}
		r.Conditions = slices.Clone(r.Conditions)
		if d.fields != nil {
			r.Conditions = append(r.Conditions, Condition{Fields: fieldsOf(d.fields), Set: true,
				In: [][]Range{d.tuple(d.fields, e.Key, e.last, 4)}})
		}
		if d.verdicts && v != nil {
			r.verdict(v)
		} else if d.resolve != nil {
			d.resolve(&r, e.Val)
		} else {
			r.Partial = true
		}
		all = append(all, r)
	}
	return all
}
