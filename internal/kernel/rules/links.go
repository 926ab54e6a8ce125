package rules

import "github.com/google/nftables/expr"

// Link is a link of the host, as far as rules refer to links.
type Link struct {
	Name  string
	Index uint32
	// Group is the link's device group, as in `ip link set … group N`.
	Group uint32
}

// Links are the links of the host.
type Links []Link

// name returns the name of the link with the index, or "" if there is none.
func (all Links) name(index uint32) string {
	for _, l := range all {
		if l.Index == index {
			return l.Name
		}
	}
	return ""
}

// compareGroup adds the condition that a link is in a group: that its name is that of
// one of the links in the group.
func (d *decoder) compareGroup(r register, e *expr.Cmp) {
	c := Condition{Fields: []Field{r.groupOf}, Not: e.Op == expr.CmpOpNeq, In: [][]Range{}}
	for _, l := range d.links {
		if l.Group == native.Uint32(e.Data) {
			name := make([]byte, linkName)
			copy(name, l.Name)
			c.In = append(c.In, []Range{{name, name}})
		}
	}
	d.add(c)
}
