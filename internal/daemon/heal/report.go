package heal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/plan"
)

// Report is what to report of a repair.
type Report struct {
	Events []api.Event
	// Elements is the number of nft elements that the event of their table includes.
	Elements int
	// Kinds has the number of repaired objects by their kind.
	Kinds map[string]int
	// Conflicting are the keys for Conflicts.Repaired.
	Conflicting map[string]bool
}

// mostEvents is how many objects of one kind get an event each, and a line in the log. The daemon
// remembers a limited number of events.
const mostEvents = 100

// ReportOf returns what to report of the steps of a repair. by is the program that has
// changed nftables, if it is known. The report omits that programs were attached to a
// new link of the host, unless detached says that some were detached.
func ReportOf(steps []plan.Op, by string, detached bool) Report {
	r := Report{Kinds: map[string]int{}, Conflicting: map[string]bool{}}
	isTable := func(o plan.Object) bool { _, is := o.(plan.Table); return is }
	table := slices.ContainsFunc(steps, func(op plan.Op) bool { return isTable(op.Object) })
	remade, more := map[string]bool{}, map[string]int{}
	for _, op := range steps {
		for _, end := range plan.Ends(op.Object) {
			remade[end] = true
		}
	}
	for _, op := range steps {
		_, uplinks := op.Object.(plan.Uplinks)
		if op.Old != nil && plan.Equal(op.Old, op.Object) && !op.Del || uplinks && !detached {
			continue // it was set again because its base was
		}
		kind := plan.KindOf(op.Object)
		r.Kinds[kind]++
		if !remade[plan.Base(op.Object)] { // if so, it was removed with its link
			r.Conflicting[conflictOf(op.Object)] = true
		}
		if table && kind == "nft element" {
			r.Elements++
			continue
		}
		if r.Kinds[kind] > mostEvents {
			more[kind]++
			continue
		}
		e := api.Event{Kind: api.Healed, Object: op.Object.Key(), Commands: op.Commands()}
		if strings.HasPrefix(e.Object, "nft ") {
			e.By = by
		}
		if isTable(op.Object) {
			e.Commands = nil // the whole table
		}
		r.Events = append(r.Events, e)
	}
	for _, kind := range slices.Sorted(maps.Keys(more)) {
		r.Events = append(r.Events, api.Event{Kind: api.Healed, Object: kind,
			Detail: fmt.Sprintf("%d more objects of this kind", more[kind])})
	}
	return r
}
