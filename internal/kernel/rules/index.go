package rules

import "slices"

// Index finds the rules that a packet for a port may match. It is for rulesets with
// thousands of rules for one port each.
type Index struct {
	all Ruleset
	// general are the indices of each chain's rules that are not for a single port.
	// single are the indices of the others, by port. Both are in order.
	general []([]int)
	single  []map[uint16][]int
}

// NewIndex creates the index of a ruleset.
func NewIndex(rs Ruleset) Index {
	x := Index{all: rs}
	for _, c := range rs {
		var general []int
		single := map[uint16][]int{}
		for i, r := range c.Rules {
			if port, ok := r.onePort(); ok {
				single[port] = append(single[port], i)
			} else {
				general = append(general, i)
			}
		}
		x.general, x.single = append(x.general, general), append(x.single, single)
	}
	return x
}

// For returns the ruleset without the rules that are only for another port.
func (x Index) For(port uint16) Ruleset {
	out := slices.Clone(x.all)
	for i, c := range x.all {
		if len(x.single[i]) == 0 {
			continue
		}
		order := append(slices.Clone(x.general[i]), x.single[i][port]...)
		slices.Sort(order)
		out[i].Rules = make([]Rule, len(order))
		for n, at := range order {
			out[i].Rules[n] = c.Rules[at]
		}
	}
	return out
}

// onePort returns the port if the rule is for a single port.
func (r Rule) onePort() (uint16, bool) {
	for _, c := range r.Conditions {
		if c.Not || len(c.In) != 1 {
			continue
		}
		for i, f := range c.Fields {
			if f != Port {
				continue
			}
			if ports, ok := c.In[0][i].Ports(); ok && ports.First == ports.Last {
				return ports.First, true
			}
		}
	}
	return 0, false
}
