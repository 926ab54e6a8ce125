package rules

import (
	"fmt"
	"slices"
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
	// Packet is the packet as it goes on, with the marks that rules have set.
	Packet Packet
	// Rerouted says that a chain of the type route has changed the mark, and the
	// kernel asks for the route again.
	Rerouted bool
}

// Cause names what decided: a rule, by its number where it has one, or the policy
// of a chain.
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

// Part says which filters of a hook a packet meets: those before the hook's NAT
// or those after it, by their priority.
type Part int

// The parts of a hook.
const (
	WholeHook Part = iota
	BeforeNAT
	AfterNAT
)

// natPriority is where NAT is done at a hook, whatever priority its chains have
// (linux/netfilter_ipv4.h: NF_IP_PRI_NAT_DST, NF_IP_PRI_NAT_SRC).
var natPriority = map[string]int{"prerouting": -100, "output": -100, "input": 100, "postrouting": 100}

// has reports whether the chain belongs to the part.
func (part Part) has(c Chain) bool {
	at, ok := natPriority[c.Hook]
	return part == WholeHook || !ok && part == BeforeNAT || ok && (c.Priority < at) == (part == BeforeNAT)
}

// maxDepth bounds jumps, as the kernel does (NFT_JUMP_STACK_SIZE).
const maxDepth = 16

// maxMet bounds the rules that a packet meets: sixteen chains that jump to the
// next twice each have 65,536 ways through them, and a sandbox's root may make as
// many as it likes.
const maxMet = 1 << 16

// Filter follows the packet through the filters of a hook: dropped by one, it
// meets no other; accepted by one, it goes on to the next.
func (rs Ruleset) Filter(hook string, p Packet) Verdict { return rs.FilterPart(hook, WholeHook, p) }

// FilterPart is Filter for a part of the hook.
func (rs Ruleset) FilterPart(hook string, part Part, p Packet) Verdict {
	chains := slices.DeleteFunc(rs.at(hook, p, "filter", "route"), func(c Chain) bool { return !part.has(c) })
	return rs.filters(chains, p)
}

// filters follows the packet through filters, one after the other.
func (rs Ruleset) filters(chains []Chain, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	for _, c := range chains {
		v := rs.through(c, out.Packet)
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

// Translate follows the packet through the NAT chains of a hook until one of
// them translates it: Action is then DNAT, Redirect, SNAT or Masquerade.
func (rs Ruleset) Translate(hook string, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	if p.NoTrack {
		return out
	}
	for _, c := range rs.at(hook, p, "nat") {
		v := rs.through(c, out.Packet)
		out.Met, out.Packet = append(out.Met, v.Met...), v.Packet
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

// Family is that of the chain's table.
func (c Chain) Family() string {
	family, _, _ := strings.Cut(c.Table, " ")
	return family
}

// Frame follows a frame through the filters of the family bridge at a hook.
func (rs Ruleset) Frame(hook string, p Packet) Verdict {
	var chains []Chain
	for _, c := range rs {
		if c.Family() == "bridge" && c.Hook == hook && c.Type != "nat" {
			chains = append(chains, c)
		}
	}
	return rs.filters(chains, p)
}

// Device follows a frame through the filters of a link, at ingress or egress.
func (rs Ruleset) Device(hook, link string, p Packet) Verdict {
	var chains []Chain
	for _, c := range rs {
		if c.Hook == hook && (c.Family() == "netdev" || c.Family() == "inet" && !p.isARP()) && (len(c.Links) == 0 || slices.Contains(c.Links, link)) {
			chains = append(chains, c)
		}
	}
	return rs.filters(chains, p)
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

// walk follows the packet through a chain and those that it jumps to, and
// reports whether a rule has decided. One that decides only perhaps, or in a
// chain that is entered only perhaps, leaves the verdict open and in doubt.
func (rs Ruleset) walk(c Chain, v *Verdict, depth int, sure bool) (decided bool) {
	for _, r := range c.Rules {
		inUse := r.Holds(v.Packet)
		if inUse == No || r.Action == None && len(r.Assigns) == 0 {
			continue
		}
		if len(v.Met) >= maxMet {
			v.Certain = false
			return true
		}
		step := Step{c.Table, c.Name, r, sure && inUse == Yes && r.Action != Other}
		v.Met = append(v.Met, step)
		v.Packet.assign(r.Assigns, step.Certain)
		switch r.Action {
		case Jump, Goto:
			to, ok := rs.Find(c.Table, r.Chain)
			if !ok { // a target of legacy iptables that is not known here
				v.Certain = false
			}
			if ok && depth < maxDepth && rs.walk(to, v, depth+1, step.Certain) {
				return true
			}
			if r.Action == Goto && inUse == Yes {
				return false
			}
		case Return:
			if inUse == Yes {
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
			if inUse == Yes {
				return false
			}
		}
	}
	return false
}
