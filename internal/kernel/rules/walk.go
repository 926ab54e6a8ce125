package rules

import (
	"strings"
)

// Step is a rule that a packet meets and that does something with it.
type Step struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	Rule  Rule   `json:"rule"`
	// Certain says that its conditions hold for certain.
	Certain bool `json:"certain"`
}

// Verdict is what becomes of a packet at a hook.
type Verdict struct {
	// Action is Accept, Drop or Reject, or the NAT that is done first.
	Action Action
	// Certain says that no other rule could have decided otherwise.
	Certain bool
	// By is the rule that decided; Policy says that it was a chain's policy, and
	// By then names the chain.
	By     Step
	Policy bool
	// Met are the rules on the way that do something, By included.
	Met []Step
}

// maxDepth bounds jumps, as the kernel does (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// Filter follows the packet through the filters of a hook: dropped by one, it
// meets no other; accepted by one, it goes on to the next.
func (rs Ruleset) Filter(hook string, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true}
	for _, c := range rs.at(hook, p, "filter", "route") {
		v := rs.through(c, p)
		out.Met = append(out.Met, v.Met...)
		if v.Action == Drop || v.Action == Reject {
			v.Met, v.Certain = out.Met, v.Certain && out.Certain
			return v
		}
		out.Certain = out.Certain && v.Certain
		if v.By.Table != "" {
			out.By, out.Policy = v.By, v.Policy
		}
	}
	return out
}

// Translate follows the packet through the NAT chains of a hook until one of
// them translates it: Action is then DNAT, Redirect, SNAT or Masquerade.
func (rs Ruleset) Translate(hook string, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true}
	for _, c := range rs.at(hook, p, "nat") {
		v := rs.through(c, p)
		out.Met = append(out.Met, v.Met...)
		out.Certain = out.Certain && v.Certain
		if v.Action != Accept {
			v.Met, v.Certain = out.Met, out.Certain
			return v
		}
	}
	return out
}

// at returns the chains of a hook that see the packet, in order.
func (rs Ruleset) at(hook string, p Packet, types ...string) []Chain {
	var found []Chain
	for _, c := range rs {
		for _, t := range types {
			if c.Hook == hook && c.Type == t && c.sees(p) {
				found = append(found, c)
			}
		}
	}
	return found
}

// sees reports whether the chain's family is the packet's.
func (c Chain) sees(p Packet) bool {
	family, _, _ := strings.Cut(c.Table, " ")
	switch family {
	case "inet":
		return true
	case "ip":
		return p.To.Addr().Is4()
	case "ip6":
		return p.To.Addr().Is6()
	}
	return false
}

// Find returns a chain of a table.
func (rs Ruleset) Find(table, name string) (Chain, bool) {
	for _, c := range rs {
		if c.Table == table && c.Name == name {
			return c, true
		}
	}
	return Chain{}, false
}

// through follows the packet through a chain with a hook.
func (rs Ruleset) through(c Chain, p Packet) Verdict {
	v := Verdict{Certain: true}
	rs.walk(c, p, &v, 0, true)
	if v.Action == None {
		v.Action = Accept
		if c.Policy != "" {
			v.Action = c.Policy
		}
		v.Policy, v.By = true, Step{Table: c.Table, Chain: c.Name, Certain: v.Certain, Rule: Rule{Action: v.Action}}
	}
	return v
}

// walk follows the packet through a chain and those that it jumps to, and
// reports whether a rule has decided. One that decides only perhaps, or in a
// chain that is entered only perhaps, leaves the verdict open and in doubt.
func (rs Ruleset) walk(c Chain, p Packet, v *Verdict, depth int, sure bool) (decided bool) {
	for _, r := range c.Rules {
		held := r.Holds(p)
		if held == No || r.Action == None {
			continue
		}
		step := Step{c.Table, c.Name, r, sure && held == Yes}
		v.Met = append(v.Met, step)
		switch r.Action {
		case Jump, Goto:
			to, ok := rs.Find(c.Table, r.Chain)
			if ok && depth < maxDepth && rs.walk(to, p, v, depth+1, step.Certain) {
				return true
			}
			if r.Action == Goto && held == Yes {
				return false
			}
		case Return:
			if held == Yes {
				return false
			}
			v.Certain = false
		case Other, NoTrack:
		default:
			if step.Certain {
				v.Action, v.By = r.Action, step
				return true
			}
			v.Certain = false
			if held == Yes {
				return false
			}
		}
	}
	return false
}
