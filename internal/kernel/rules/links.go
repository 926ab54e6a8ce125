package rules

import "github.com/google/nftables/expr"

// Link is a link of the host, as far as rules refer to links.
type Link struct {
	Name  string
	Index uint32
	// Group is the link's device group, as in `ip link set … group N`.
	Group uint32
	// Type is the type of hardware, e.g. ARPHRD_ETHER.
	Type uint16
}

// Links are the links of the host.
type Links []Link

// name returns the name of the link with the index. If there is none, it returns a name that
// no link has: not "", which stands for the absent link of a hook.
func (all Links) name(index uint32) string {
	for _, l := range all {
		if l.Index == index {
			return l.Name
		}
	}
	return "/"
}

// compareKind adds the condition that a link is in a group, or has a type of hardware:
// that its name is that of one of these links. Where there is no link, the rule does not
// match, also if the kind must differ (nft_meta_get_eval).
func (d *decoder) compareKind(r register, e *expr.Cmp) {
	c := Condition{Fields: []Field{r.kindOf}, Not: e.Op == expr.CmpOpNeq, In: [][]Range{}}
	if c.Not {
		none := make([]byte, linkName)
		c.In = append(c.In, []Range{{none, none}})
	}
	for _, l := range d.links {
		if len(e.Data) == 2 && l.Type == native.Uint16(e.Data) || len(e.Data) == 4 && l.Group == native.Uint32(e.Data) {
			name := make([]byte, linkName)
			copy(name, l.Name)
			c.In = append(c.In, []Range{{name, name}})
		}
	}
	d.add(c)
}
