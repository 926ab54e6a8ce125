package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Step is a rule that a packet matches and that has an effect on it.
type Step struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	Rule  Rule   `json:"rule"`
	// Certain means that its conditions match for certain.
	Certain bool `json:"certain"`
}

// Verdict is the result for a packet at a hook.
type Verdict struct {
	// Action is Accept, Drop or Reject, or the first NAT action.
	Action Action
	// Certain means that no other rule could have changed the decision.
	Certain bool
	// By is the rule that decided. Policy means that a chain's policy decided; By
	// then names the chain.
	By     Step
	Policy bool
	// Met are the matching rules with an effect, in order, including By.
	Met []Step
	// Packet is the packet afterwards, with the marks that rules have set.
	Packet Packet
	// Rerouted means that a chain of type route has changed the mark, so that the
	// kernel repeats the route lookup.
	Rerouted bool
}

// Cause describes what decided: a rule, with its handle if it has one, or the
// policy of a chain.
func (v Verdict) Cause() string {
	what := "a rule"
	switch {
	case v.Policy:
		what = "the policy"
	case v.By.Rule.Handle != 0:
		what = fmt.Sprintf("the rule with handle %d", v.By.Rule.Handle)
	}
	return fmt.Sprintf("%s of chain %s (%s)", what, v.By.Chain, v.By.Table)
}

// Part selects the filter chains of a hook that run before or after the hook's NAT,
// depending on their priority.
type Part int

// The parts of a hook.
const (
	WholeHook Part = iota
	BeforeNAT
	AfterNAT
)

// natPriority is the priority of NAT at a hook, which does not depend on the
// priority of its chains (linux/netfilter_ipv4.h: NF_IP_PRI_NAT_DST,
// NF_IP_PRI_NAT_SRC).
var natPriority = map[string]int{"prerouting": -100, "output": -100, "input": 100, "postrouting": 100}

// has reports whether the chain belongs to the part.
func (part Part) has(c Chain) bool {
	at, ok := natPriority[c.Hook]
	return part == WholeHook || !ok && part == BeforeNAT || ok && (c.Priority < at) == (part == BeforeNAT)
}

// maxDepth limits nested jumps, as the kernel does (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// maxMet limits the rules that are evaluated for a packet. Sixteen chains that each
// jump twice to the next have 65,536 paths through them, and root in a sandbox may
// create as many as it likes.
const maxMet = 1 << 16

// Filter follows the packet through the filter chains of a hook. A packet that one
// chain accepts continues with the next; a dropped one does not.
func (rs Ruleset) Filter(hook string, p Packet) Verdict { return rs.FilterPart(hook, WholeHook, p) }

// FilterPart is Filter for a part of the hook.
func (rs Ruleset) FilterPart(hook string, part Part, p Packet) Verdict {
	chains := slices.DeleteFunc(rs.at(hook, p, "filter", "route"), func(c Chain) bool { return !part.has(c) })
	return rs.filters(chains, p)
}

// filters follows the packet through filter chains, one after the other.
func (rs Ruleset) filters(chains []Chain, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	for _, c := range chains {
		v := rs.followChain(c, out.Packet)
		out.Rerouted = out.Rerouted || c.Type == "route" && v.Packet.Mark != out.Packet.Mark
		out.Met, out.Packet = append(out.Met, v.Met...), v.Packet
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

// Translate follows the packet through the NAT chains of a hook until one of them
// translates it. Action is then DNAT, Redirect, SNAT or Masquerade.
func (rs Ruleset) Translate(hook string, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	if p.NoTrack {
		return out
	}
	for _, c := range rs.at(hook, p, "nat") {
		v := rs.followChain(c, out.Packet)
		out.Met, out.Packet = append(out.Met, v.Met...), v.Packet
		out.Certain = out.Certain && v.Certain
		if v.Action != Accept {
			v.Met, v.Certain = out.Met, out.Certain
			return v
		}
	}
	return out
}

// at returns the chains of a hook that process the packet, in order.
func (rs Ruleset) at(hook string, p Packet, types ...string) []Chain {
	var found []Chain
	for _, c := range rs {
		for _, t := range types {
			if c.Hook == hook && c.Type == t && c.appliesTo(p) {
				found = append(found, c)
			}
		}
	}
	return found
}

// appliesTo reports whether the chain's family includes the packet.
func (c Chain) appliesTo(p Packet) bool {
	switch c.Family() {
	case "inet":
		return !p.isARP()
	case "ip":
		return p.To.Addr().Is4() && !p.isARP()
	case "ip6":
		return p.To.Addr().Is6()
	case "arp":
		return p.isARP()
	}
	return false
}

// Family returns the family of the chain's table.
func (c Chain) Family() string {
	family, _, _ := strings.Cut(c.Table, " ")
	return family
}

// Frame follows a frame through the filter chains of the bridge family at a hook.
func (rs Ruleset) Frame(hook string, p Packet) Verdict {
	var chains []Chain
	for _, c := range rs {
		if c.Family() == "bridge" && c.Hook == hook && c.Type != "nat" {
			chains = append(chains, c)
		}
	}
	return rs.filters(chains, p)
}

// Device follows a frame through the filter chains of a link, at ingress or egress.
func (rs Ruleset) Device(hook, link string, p Packet) Verdict {
	var chains []Chain
	for _, c := range rs {
		if c.Hook == hook && (c.Family() == "netdev" || c.Family() == "inet" && !p.isARP()) &&
			(len(c.Links) == 0 || slices.Contains(c.Links, link)) {
			chains = append(chains, c)
		}
	}
	return rs.filters(chains, p)
}

// Find returns a chain of a table, and false if there is none.
func (rs Ruleset) Find(table, name string) (Chain, bool) {
	for _, c := range rs {
		if c.Table == table && c.Name == name {
			return c, true
		}
	}
	return Chain{}, false
}

// followChain follows the packet through a chain with a hook.
func (rs Ruleset) followChain(c Chain, p Packet) Verdict {
	v := Verdict{Certain: true, Packet: p}
	rs.walk(c, &v, 0, true)
	if v.Action == None {
		v.Action = Accept
		if c.Policy != "" {
			v.Action = c.Policy
		}
		v.Policy, v.By = true, Step{Table: c.Table, Chain: c.Name, Certain: v.Certain, Rule: Rule{Action: v.Action}}
	}
	return v
}

// walk follows the packet through a chain and the chains that it jumps to, and
// reports whether a rule has decided. If a deciding rule may not match, or is in a
// chain that may not be entered, the verdict stays open and becomes uncertain.
func (rs Ruleset) walk(c Chain, v *Verdict, depth int, sure bool) (decided bool) {
	for _, r := range c.Rules {
		matches := r.Matches(v.Packet)
		if matches == No || r.Action == None && len(r.Assigns) == 0 {
			continue
		}
		if len(v.Met) >= maxMet {
			v.Certain = false
			return true
		}
		step := Step{c.Table, c.Name, r, sure && matches == Yes && r.Action != Other}
		v.Met = append(v.Met, step)
		v.Packet.assign(r.Assigns, step.Certain)
		switch r.Action {
		case Jump, Goto:
			to, ok := rs.Find(c.Table, r.Chain)
			if !ok { // an unsupported target of legacy iptables
				v.Certain = false
			}
			if ok && depth < maxDepth && rs.walk(to, v, depth+1, step.Certain) {
				return true
			}
			if r.Action == Goto && matches == Yes {
				return false
			}
		case Return:
			if matches == Yes {
				return false
			}
			v.Certain = false
		case None:
		case NoTrack:
			v.Packet.NoTrack = true
			v.Certain = v.Certain && step.Certain
		case Other:
			v.Certain = false
		default:
			if step.Certain {
				v.Action, v.By = r.Action, step
				return true
			}
			v.Certain = false
			if matches == Yes {
				return false
			}
		}
	}
	return false
}
