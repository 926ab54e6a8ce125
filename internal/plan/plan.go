// Package plan says what the kernel and the user-space proxy shall hold, as
// comparable values: links, addresses, routes, sysctls, nft elements,
// listeners. It tells two plans apart and writes each step as an expert
// would type it. It never touches the kernel; package kernel does.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/escape"
)

// Mark names everything of ours in the kernel: the nft table, the prefix of
// interface aliases and of cgroups.
const Mark = "fairlead"

// RouteProtocol marks our routes (rtm_protocol; see rtnetlink(7)). 0xfa is
// not assigned in iproute2's rt_protos.
const RouteProtocol = 0xfa

// Object is one thing that shall exist. Implementations are comparable
// structs: two objects of one Key are equal when nothing needs to be done.
type Object interface {
	// Key identifies the object within a plan: its kind and its name.
	Key() string
	// Add returns the commands that make the object, or bring it to this
	// state, as typed in a shell.
	Add() []string
	// Del returns the commands that remove it; none where it goes with
	// another object.
	Del() []string
}

// Plan is a list of objects in the order in which they must be made.
type Plan []Object

// Op is one step from one plan to another.
type Op struct {
	// Object is what shall be set, or removed when Del is true.
	Object Object
	Del    bool
	// Old is what Object replaces, nil when it is new; with Del, what the
	// host had before Object, nil when nothing or not known.
	Old Object
}

// Diff returns the steps that lead from have to want: what is missing or
// differs in the order of want, then what is left over in the reverse order
// of have. What stands on a link that is made anew goes with the old one, so
// it is set again even if have holds it.
func Diff(have, want Plan) []Op {
	// Plans of thousands of objects differ in a few that stand together.
	first, last := common(have, want)
	rest := want[len(want)-last:]
	have, want = have[first:len(have)-last], want[first:len(want)-last]

	before := make(map[string]int, len(have))
	for i, o := range have {
		before[o.Key()] = i
	}
	var ops []Op
	wanted := make([]bool, len(have))
	remade := map[string]bool{}
	for _, o := range want {
		var old Object
		if i, ok := before[o.Key()]; ok {
			old, wanted[i] = have[i], true
		}
		if old == o && !stoodOn(o, remade) {
			continue
		}
		ops = append(ops, Op{Object: o, Old: old})
		if link, is := o.(linker); is && !link.adjusts(old) {
			for _, end := range link.Ends() {
				remade[end] = true
			}
		}
	}
	for _, o := range rest {
		if len(remade) > 0 && stoodOn(o, remade) {
			ops = append(ops, Op{Object: o, Old: o})
		}
	}
	for i, o := range slices.Backward(have) {
		if !wanted[i] {
			ops = append(ops, Op{Object: o, Del: true})
		}
	}
	return ops
}

// common returns how many objects are the same at the beginnings and at the
// ends of two plans.
func common(a, b Plan) (first, last int) {
	n := min(len(a), len(b))
	for first < n && a[first] == b[first] {
		first++
	}
	for last < n-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	return first, last
}

// linker is an object that is a network interface, or several.
type linker interface {
	// Ends names the interfaces: "NETNS NAME".
	Ends() []string
	// adjusts reports whether the link can be brought from old to this state,
	// or has to be made anew.
	adjusts(old Object) bool
}

// Ends names the interfaces that the object is; none where it is none.
func Ends(o Object) []string {
	if l, ok := o.(linker); ok {
		return l.Ends()
	}
	return nil
}

// based is an object that stands on a link.
type based interface{ base() string }

// Base returns the name, as in Ends, of the link without which the object
// cannot be; the empty string where there is none.
func Base(o Object) string {
	if b, ok := o.(based); ok {
		return b.base()
	}
	return ""
}

// stoodOn reports whether a link that the object needs is among those.
func stoodOn(o Object, links map[string]bool) bool {
	if s, ok := o.(EBPFService); ok {
		return len(links) > 0 && slices.ContainsFunc(s.bases(), func(base string) bool { return links[base] })
	}
	return links[Base(o)]
}

// changer is an object of which Add is not the way from another state.
type changer interface{ change(old Object) []string }

// Commands returns the step as typed in a shell.
func (o Op) Commands() []string {
	switch {
	case o.Del && o.Old != nil:
		return o.Old.Add()
	case o.Del:
		return o.Object.Del()
	}
	if c, ok := o.Object.(changer); ok && o.Old != nil && o.Old != o.Object {
		return c.change(o.Old)
	}
	return o.Object.Add()
}

// Text writes the steps as a shell session, one command a line. The elements
// of the nft table that go, go before others come: typed one by one, a range
// is refused as long as one that overlaps it is there.
func Text(ops []Op) string {
	var b strings.Builder
	write := func(op Op) {
		for _, c := range op.Commands() {
			b.WriteString(c)
			b.WriteByte('\n')
		}
	}
	early := slices.ContainsFunc(ops, func(op Op) bool { return !op.Del && isElement(op.Object) })
	pending := early
	for _, op := range ops {
		switch {
		case early && op.Del && isElement(op.Object):
			continue
		case pending && isElement(op.Object):
			pending = false
			for _, gone := range ops {
				if gone.Del && isElement(gone.Object) {
					write(gone)
				}
			}
		}
		write(op)
	}
	return b.String()
}

func isElement(o Object) bool {
	switch o.(type) {
	case NFTMapping, Member, Proxied, NFTService:
		return true
	}
	return false
}

// Part is a plan whose keys are known, for plans that are merged again and
// again.
type Part struct {
	objects Plan
	keys    []string
}

// NewPart returns the part that p is. It must not change any more.
func NewPart(p Plan) Part {
	keys := make([]string, len(p))
	for i, o := range p {
		keys[i] = o.Key()
	}
	return Part{p, keys}
}

// Merge joins parts in order and keeps the first of equal keys, so that
// several parts may ask for the same thing (IP forwarding, say). Two parts
// that ask for different states of one thing are in conflict.
//
// Members of the nft table's sets are dropped where nothing asks for the table:
// a driver says which links are ours for the rules of others, and a table costs
// every packet of the host its way through connection tracking.
func Merge(parts ...Part) (Plan, error) {
	n := 0
	for _, p := range parts {
		n += len(p.objects)
	}
	seen := make(map[string]Object, n)
	all := make(Plan, 0, n)
	for _, p := range parts {
		for i, o := range p.objects {
			first, ok := seen[p.keys[i]]
			switch {
			case !ok:
				seen[p.keys[i]] = o
				all = append(all, o)
			case first != o:
				return nil, fmt.Errorf("plan %s: asked for as %+v and as %+v", p.keys[i], first, o)
			}
		}
	}
	if _, table := seen[Table{}.Key()]; !table {
		all = slices.DeleteFunc(all, func(o Object) bool { _, member := o.(Member); return member })
	}
	return all, nil
}

// in returns the prefix that makes a command run in a network namespace.
func in(netns, tool string) string {
	switch name, named := strings.CutPrefix(netns, "/run/netns/"); {
	case netns == "":
		return tool
	case named && tool == "ip":
		return "ip -n " + escape.Shell(name)
	case named:
		return "ip netns exec " + escape.Shell(name) + " " + tool
	default:
		return "nsenter --net=" + escape.Shell(netns) + " " + tool
	}
}
