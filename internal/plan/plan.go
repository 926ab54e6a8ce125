// Package plan describes the desired state of the kernel and of the user-space
// proxy as comparable values: links, addresses, routes, sysctls, nft elements,
// listeners. It computes the difference between two plans, and writes each step as
// a shell command. It never touches the kernel; package kernel does.
package plan

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"fairlead/internal/escape"
)

// Mark identifies Fairlead's objects in the kernel. It is the name of the nft table
// and the prefix of other tables, interface aliases and cgroups.
const Mark = "fairlead"

// RouteProtocol marks Fairlead's routes (rtm_protocol; see rtnetlink(7)). 0xfa is
// not assigned in iproute2's rt_protos.
const RouteProtocol = 0xfa

// Plan is a list of objects in the order in which they must be created.
type Plan []Object

// Op is one step from one plan to another.
type Op struct {
	// Object is what is set, or removed if Del is true.
	Object Object
	Del    bool
	// Old is the object that Object replaces; nil if Object is new. If Del is true,
	// Old is what the host had before Object; nil if it had nothing or if that is
	// not known.
	Old Object
}

// Inverse returns the steps that undo the steps.
func Inverse(ops []Op) []Op {
	var back []Op
	for _, op := range slices.Backward(ops) {
		switch {
		case op.Del:
			back = append(back, Op{Object: op.Object})
		case op.Old != nil:
			back = append(back, Op{Object: op.Old, Old: op.Object})
		default:
			back = append(back, Op{Object: op.Object, Del: true})
		}
	}
	return back
}

// Batches divides steps, in their order, into those that are carried out together:
// consecutive steps of one group, or of several nft tables. A step on an object of
// group Single is a batch of its own.
func Batches(ops []Op) iter.Seq[[]Op] {
	return func(yield func([]Op) bool) {
		for len(ops) > 0 {
			n := 1
			for first := GroupOf(ops[0].Object); n < len(ops) && first.joins(GroupOf(ops[n].Object)); {
				n++
			}
			if !yield(ops[:n]) {
				return
			}
			ops = ops[n:]
		}
	}
}

// StepError is the error for an object of group Single that could not be created or
// removed.
type StepError struct {
	Object Object
	Err    error
}

// Error implements error: the kernel's errors name the object.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Diff returns the steps that change have to want. First come the objects that are
// missing or differ, in the order of want; then the objects that are left over, in
// the reverse order of have. If a link is recreated, the kernel deletes the objects
// that depend on it, so Diff sets them again even if have contains them.
func Diff(have, want Plan) []Op {
	// Two plans of thousands of objects usually differ in a few neighbouring
	// objects.
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
		if old != nil && Equal(old, o) && !DependsOn(o, remade) {
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
		if len(remade) > 0 && DependsOn(o, remade) {
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

// common returns the number of equal objects at the beginning and at the end of two
// plans.
func common(a, b Plan) (first, last int) {
	n := min(len(a), len(b))
	for first < n && Equal(a[first], b[first]) {
		first++
	}
	for last < n-first && Equal(a[len(a)-1-last], b[len(b)-1-last]) {
		last++
	}
	return first, last
}

// Commands returns the step as shell commands.
func (o Op) Commands() []string {
	switch {
	case o.Del && o.Old != nil:
		return o.Old.Add()
	case o.Del:
		return o.Object.Del()
	}
	if o.Old == nil || Equal(o.Old, o.Object) {
		return o.Object.Add()
	}
	switch object := o.Object.(type) {
	case changer:
		return object.change(o.Old)
	case settable:
		if object.adjusts(o.Old) {
			return object.set()
		}
		return append(o.Old.Del(), object.Add()...)
	}
	return o.Object.Add()
}

// Text writes the steps as shell commands, one per line. It removes elements of the
// nft table before it adds others, because nft refuses a range that overlaps an
// existing one.
func Text(ops []Op) string {
	var b strings.Builder
	write := func(op Op) {
		for _, c := range op.Commands() {
			b.WriteString(c)
			b.WriteByte('\n')
		}
	}
	reorder := slices.ContainsFunc(ops, func(op Op) bool { return !op.Del && isElement(op.Object) })
	pending := reorder
	for _, op := range ops {
		switch {
		case reorder && op.Del && isElement(op.Object):
			continue
		case pending && isElement(op.Object):
			pending = false
			for _, removed := range ops {
				if removed.Del && isElement(removed.Object) {
					write(removed)
				}
			}
		}
		write(op)
	}
	return b.String()
}

// Part is a plan with its keys. Computing the keys once makes repeated merges
// cheap.
type Part struct {
	objects Plan
	keys    []string
}

// NewPart returns the part of a plan. The caller must not change the plan
// afterwards.
func NewPart(p Plan) Part {
	keys := make([]string, len(p))
	for i, o := range p {
		keys[i] = o.Key()
	}
	return Part{p, keys}
}

// Has reports whether the part has an object with the key.
func (p Part) Has(key string) bool { return slices.Contains(p.keys, key) }

// Merge joins parts in order and keeps the first of equal keys, so that several
// parts may contain the same object (IP forwarding, for example). It returns an
// error if two parts contain different states of one object.
//
// Merge drops the members of the nft table's sets if no part contains the table.
// Drivers always add these members, so that the rules of other parts can match
// Fairlead's links. The table itself makes every packet of the host pass connection
// tracking.
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
			case !Equal(first, o):
				return nil, conflict(first, o)
			}
		}
	}
	if _, table := seen[Table{}.Key()]; !table {
		all = slices.DeleteFunc(all, func(o Object) bool { _, member := o.(Member); return member })
	}
	return all, nil
}

// conflict returns the error that two objects with one key differ. The names of links
// contain hashes of names, so two networks or endpoints may have the same.
func conflict(first, second Object) error {
	type owned interface{ Alias() string }
	a, is := first.(owned)
	b, also := second.(owned)
	if is && also && a.Alias() != b.Alias() {
		owner := func(o owned) string { return strings.TrimPrefix(o.Alias(), Mark+":") }
		return fmt.Errorf("make a link for %s: its name would be that of the link for %s: choose another name than %s",
			owner(b), owner(a), owner(b))
	}
	return fmt.Errorf("merge plans: %s has two different states: %+v and %+v", first.Key(), first, second)
}

// in returns the command prefix that runs a tool in a network namespace.
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
