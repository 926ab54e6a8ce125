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
		d.rule.Partial = true
		if e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT {
			d.other()
		}
		return
	}
	fields := d.concatenation(slot(e.SourceRegister), elements)
	if fields == nil && len(elements) > 0 {
		d.rule.Partial = true
	}
	if e.IsDestRegSet {
		d.rule.Partial = d.rule.Partial || d.branches != nil || len(d.rule.Assigns) > 0
		d.branches, d.fields = elements, fields
		if d.verdicts = e.DestRegister == unix.NFT_REG_VERDICT; !d.verdicts {
			d.at = slot(e.DestRegister)
			d.registers[d.at] = register{mapped: true}
		}
		if elements == nil {
			d.branches = []nftables.SetElement{}
		}
		return
	}
	if fields == nil && len(elements) > 0 { // a field that is not supported
		return
	}
	c := Condition{Not: e.Invert, In: [][]Range{}}
	for _, f := range fields {
		c.Fields = append(c.Fields, f.field)
	}
	for _, r := range ranges(elements) {
		c.In = append(c.In, d.tuple(fields, r))
	}
	if c.Fields == nil { // the set is empty
		c.Fields = []Field{Protocol}
	}
	d.add(c)
}

// concatenation returns the fields in the registers from at on, as many as the
// elements' keys have. It returns nil if one of them is not supported.
func (d *decoder) concatenation(at uint32, elements []nftables.SetElement) []register {
	if len(elements) == 0 {
		return nil
	}
	var fields []register
	for left := len(elements[0].Key); left > 0; {
		r := d.registers[at]
		if r.field == "" || r.mask != nil || r.size <= 0 {
			return nil
		}
		fields = append(fields, r)
		steps := (r.size + 3) / 4
		at += uint32(steps)
		left -= steps * 4
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
		slices.SortStableFunc(list, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
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

// tuple splits an element's key into the ranges of the fields.
func (d *decoder) tuple(fields []register, e element) []Range {
	var parts []Range
	at := 0
	for _, f := range fields {
		n := min(f.size, len(e.Key)-at, len(e.last)-at)
		if n < 0 {
			break
		}
		parts = append(parts, d.whole(f, Range{e.Key[at : at+n], e.last[at : at+n]}))
		at += (f.size + 3) / 4 * 4
	}
	return parts
}

// branched returns one rule per element of the map.
func (d *decoder) branched() []Rule {
	var all []Rule
	for _, e := range ranges(d.branches) {
		r := d.rule
		r.Conditions = slices.Clone(r.Conditions)
		if d.fields != nil {
			c := Condition{In: [][]Range{d.tuple(d.fields, e)}}
			for _, f := range d.fields {
				c.Fields = append(c.Fields, f.field)
			}
			r.Conditions = append(r.Conditions, c)
		}
		if v := elementVerdict(e.SetElement); d.verdicts && v != nil {
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
