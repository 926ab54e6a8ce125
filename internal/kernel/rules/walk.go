package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
	// Certain means that the decision is the same whether or not the rules match of
	// which that is not known.
	Certain bool
	// Doubts are the rules on which the decision depends if it is not certain.
	Doubts []Step
	// By is the rule that decided. Policy means that a chain's policy decided; By
	// then names the chain.
	By     Step
	Policy bool
	// Met are the matching rules with an effect, in order, including By.
	Met []Step
	// Packet is the packet afterwards, with the marks that rules have set.
	Packet Packet
	// Until is when the first element expires that may change the verdict; zero if none does.
	Until time.Time
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

// filters follows the packet through filter chains, one after the other. If one may
// drop the packet, it is followed further: another one may drop it with certainty.
func (rs Ruleset) filters(chains []Chain, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	changed := false // in a way that is not followed
	for _, c := range chains {
		v, lost := rs.followChain(c, out.Packet)
		out.Rerouted = out.Rerouted || c.Type == "route" && v.Packet.Mark != out.Packet.Mark
		out.Met, out.Packet, changed = append(out.Met, v.Met...), v.Packet, changed || lost
		out.Until = Earlier(out.Until, v.Until)
		if ends(v.Action) && v.Certain && !changed {
			v.Met, v.Packet, v.Until = out.Met, out.Packet, out.Until
			return v
		}
		out.Doubts = append(out.Doubts, v.Doubts...)
		out.Certain = out.Certain && v.Certain
		if !ends(out.Action) && (ends(v.Action) || v.By.Table != "") {
			out.Action, out.By, out.Policy = v.Action, v.By, v.Policy
		}
	}
	out.Certain = out.Certain && !changed
	return out
}

// ends reports whether a packet does not continue after the action.
func ends(a Action) bool { return a == Drop || a == Reject }

// Translate follows the packet through the NAT chains of a hook until one of them
// translates or drops it. Action is then DNAT, Redirect, SNAT, Masquerade, Drop or
// Reject.
func (rs Ruleset) Translate(hook string, p Packet) Verdict {
	out := Verdict{Action: Accept, Certain: true, Packet: p}
	if p.untracked() {
		return out
	}
	for _, c := range rs.at(hook, p, "nat") {
		v, lost := rs.followChain(c, out.Packet)
		out.Met, out.Packet, out.Until = append(out.Met, v.Met...), v.Packet, Earlier(out.Until, v.Until)
		out.Certain = out.Certain && v.Certain && !lost
		out.Doubts = append(out.Doubts, v.Doubts...)
		if v.Action != Accept {
			v.Met, v.Certain, v.Doubts, v.Packet, v.Until = out.Met, out.Certain, out.Doubts, out.Packet, out.Until
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

// follower follows a packet through the rules of one chain with a hook.
type follower struct {
	Ruleset
	packet Packet
	met    []Step
	// final is the rule that decides. possible are the rules that may decide before it.
	final    Step
	possible []Step
	// unknown are the rules that may change the packet, or its path through the
	// chains, in a way that is not followed.
	unknown []Step
	// until is when the first element expires of those that rules in the packet's way look up.
	until time.Time
}

// followChain follows the packet through a chain with a hook. lost means that a rule may
// have changed the packet in a way that is not followed.
func (rs Ruleset) followChain(c Chain, p Packet) (v Verdict, lost bool) {
	f := follower{Ruleset: rs, packet: p}
	f.packet.Invalid = p.Invalid || c.beforeConntrack(p)
	f.packet.Behind = p.Behind || c.Hook == "prerouting" && p.In == "lo" // nft_fib_can_skip; later it depends on the kernel
	f.walk(c, 0, true)
	f.packet.Invalid, f.packet.Behind = p.Invalid, p.Behind
	policy := f.final.Table == ""
	if policy {
		f.final = Step{Table: c.Table, Chain: c.Name, Certain: true, Rule: Rule{Action: Accept}}
		if c.Policy != "" {
			f.final.Rule.Action = c.Policy
		}
	}
	v = Verdict{Action: f.final.Rule.Action, By: f.final, Policy: policy, Met: f.met, Packet: f.packet,
		Doubts: f.unknown, Until: f.until}
	for _, s := range f.possible {
		if !s.Rule.sameEnd(f.final.Rule) {
			v.Doubts = append(v.Doubts, s)
		}
	}
	v.Certain = len(v.Doubts) == 0
	return v, len(f.unknown) > 0
}

// conntrackPriority is the priority of connection tracking (linux/netfilter_ipv4.h:
// NF_IP_PRI_CONNTRACK).
const conntrackPriority = -200

// beforeConntrack reports whether a packet gets to the chain before connection tracking:
// its state is invalid there. A packet over loopback keeps its connection.
func (c Chain) beforeConntrack(p Packet) bool {
	switch c.Hook {
	case "ingress":
		return true
	case "prerouting":
		return c.Priority < conntrackPriority && p.In != "lo"
	case "output":
		return c.Priority < conntrackPriority
	}
	return false
}

// sameEnd reports whether both rules do the same with a packet.
func (r Rule) sameEnd(o Rule) bool {
	if ends(r.Action) || ends(o.Action) {
		return ends(r.Action) == ends(o.Action)
	}
	return r.Action == o.Action && r.To == o.To && r.ToLast == o.ToLast && r.ToPorts == o.ToPorts && !r.Choice &&
		!o.Choice
}

// Earlier returns the earlier of two times, of which zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// walk follows the packet through a chain and the chains that it jumps to, and reports
// whether a rule has decided. It is not sure that the packet is in the chain, or still in
// it, if a rule that may not match brought it there, or may have taken it away.
func (f *follower) walk(c Chain, depth int, sure bool) (decided bool) {
	for _, r := range c.Rules {
		if !r.Until.IsZero() && r.mayMatch(f.packet) {
			f.until = Earlier(f.until, r.Until)
		}
		matches := r.Matches(f.packet)
		if matches == No || r.Action == None && len(r.Assigns) == 0 {
			continue
		}
		step := Step{c.Table, c.Name, r, sure && matches == Yes && r.Action != Other}
		if len(f.met) >= maxMet {
			f.unknown = append(f.unknown, step)
			return true
		}
		f.met = append(f.met, step)
		f.packet.assign(r.Assigns, step.Certain && len(f.possible) == 0)
		switch r.Action {
		case None:
		case Jump, Goto:
			if f.jump(step, depth) {
				return true
			}
			if r.Action == Goto && matches == Yes {
				return false
			}
			sure = sure && r.Action == Jump
		case Return:
			if matches == Yes {
				return false
			}
			sure = false
		case NoTrack:
			if f.packet.Invalid { // else it has a connection already, and the rule has no effect
				f.packet.NoTrack = true
				f.doubtUnless(step.Certain, step)
			}
		case Other:
			f.doubtUnless(false, step)
		default:
			if step.Certain {
				f.final = step
				return true
			}
			f.possible = append(f.possible, step)
			if matches == Yes {
				return false
			}
		}
	}
	return false
}

// jump follows the packet through the chain to which a rule jumps.
func (f *follower) jump(step Step, depth int) (decided bool) {
	to, ok := f.Find(step.Table, step.Rule.Chain)
	f.doubtUnless(ok, step) // else it is an unsupported target of legacy iptables
	return ok && depth < maxDepth && f.walk(to, depth+1, step.Certain)
}

// doubtUnless records a rule whose effect is not known, unless ok.
func (f *follower) doubtUnless(ok bool, step Step) {
	if !ok {
		f.unknown = append(f.unknown, step)
	}
}
