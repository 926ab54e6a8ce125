// Package status says which objects of a configuration are in use, which are not, and why.
//
// It does not decide that: the packages that build objects record it.
package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/similar"
)

// State says whether an object of the configuration is in use.
type State string

// The states, with Traefik's names.
const (
	Enabled  State = "enabled"
	Warning  State = "warning"
	Disabled State = "disabled"
)

// Status is what became of an object of the configuration.
type Status struct {
	// Kind is "router", "service", "middleware", "transport", "tls options",
	// "certificate" or "entry point".
	Kind string `json:"kind"`
	// Name is qualified.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Reasons say why it is not in use, or what is doubtful.
	Reasons []string `json:"reasons,omitempty"`
	// Rule is the rule of an HTTP router that is not in the configuration, if it is known.
	Rule string `json:"rule,omitempty"`
}

// Object identifies an object of the configuration.
type Object struct{ Kind, Name string }

// Table has the status of all objects. Those of the kinds that a build keeps stay
// until the object is built again; all others are of one build.
type Table struct {
	lasting, others map[Object]*Status
	// touched are those of the lasting ones that this build may have changed.
	touched map[Object]bool
	// list is the result of the last build.
	list []Status
}

// NewTable returns an empty table.
func NewTable() Table { return Table{lasting: map[Object]*Status{}} }

// Lasts reports whether the statuses of a kind stay until the object is built again.
func Lasts(kind string) bool { return kind == "router" || kind == "service" || kind == "middleware" }

// Begin forgets the statuses of the changed objects, and returns the others that do not
// last.
func (s *Table) Begin(changed map[Object]bool) (others map[Object]*Status) {
	others = s.others
	s.others, s.touched = map[Object]*Status{}, map[Object]bool{}
	for o := range changed {
		s.Forget(o)
	}
	return others
}

// Forget removes the status of an object that is built again.
func (s *Table) Forget(o Object) {
	if Lasts(o.Kind) {
		s.touched[o] = true
		delete(s.lasting, o)
	}
}

// Of returns the status of an object. It records the object as enabled unless it has a record.
func (s *Table) Of(kind, name string) *Status {
	key, to := Object{kind, name}, s.those(kind)
	if Lasts(kind) {
		s.touched[key] = true
	}
	if to[key] == nil {
		to[key] = &Status{Kind: kind, Name: name, State: Enabled}
	}
	return to[key]
}

// those returns the statuses with the kind's.
func (s *Table) those(kind string) map[Object]*Status {
	if Lasts(kind) {
		return s.lasting
	}
	return s.others
}

// Disabled records the object as enabled unless it has a record, and reports whether it is disabled.
func (s *Table) Disabled(kind, name string) bool { return s.Of(kind, name).State == Disabled }

// Reason returns the first reason why an object is disabled, empty if it is not or is not known.
func (s *Table) Reason(kind, name string) string {
	if at := s.those(kind)[Object{kind, name}]; at != nil && at.State == Disabled {
		return at.Reasons[0]
	}
	return ""
}

// Keep records the status of an object that does not last: it is that of the last build.
func (s *Table) Keep(o Object, last *Status) { s.others[o] = last }

// Unusable says why an object that another one names cannot be used.
func Unusable[T any](s *Table, kind, name string, known map[string]*T) string {
	reason := s.Reason(kind, name)
	switch {
	case name == "":
		return "it names no service"
	case reason != "":
		return fmt.Sprintf("%s %s is disabled: %s", kind, name, reason)
	case known[name] == nil:
		return fmt.Sprintf("%s %s does not exist%s", kind, name, similar.Qualified(name, maps.Keys(known)))
	}
	return fmt.Sprintf("%s %s is disabled", kind, name)
}

// Add records what a provider knows of an object.
func (s *Table) Add(known Status) {
	if known.Rule != "" {
		s.Of(known.Kind, known.Name).Rule = known.Rule
	}
	for _, reason := range known.Reasons {
		if known.State == Disabled {
			s.Disable(known.Kind, known.Name, reason)
		} else {
			s.Warn(known.Kind, known.Name, reason)
		}
	}
}

// Disable records why the object cannot be used.
func (s *Table) Disable(kind, name, reason string) {
	at := s.Of(kind, name)
	at.State = Disabled
	at.add(reason)
}

// Warn records what is doubtful about the object.
func (s *Table) Warn(kind, name, reason string) {
	at := s.Of(kind, name)
	if at.State == Enabled {
		at.State = Warning
	}
	at.add(reason)
}

// Add adds a reason that is not known yet: it may hold at several entry points.
func (s *Status) add(reason string) {
	if !slices.Contains(s.Reasons, reason) {
		s.Reasons = append(s.Reasons, reason)
	}
}

// Last returns the result of the last build.
func (s *Table) Last() []Status { return s.list }

// Sorted returns all statuses in order. It takes those that this build did not touch from
// the last list, which has their order.
func (s *Table) Sorted() []Status {
	var fresh []Status
	for key := range s.touched {
		// One that is gone is empty: it only removes the last one.
		at := Status{Kind: key.Kind, Name: key.Name}
		if found := s.lasting[key]; found != nil {
			at = *found
		}
		fresh = append(fresh, at)
	}
	for _, at := range s.others {
		fresh = append(fresh, *at)
	}
	slices.SortFunc(fresh, byName)
	all := make([]Status, 0, len(s.list)+len(fresh))
	add := func(at Status) {
		if at.State != "" {
			all = append(all, at)
		}
	}
	for _, at := range s.list {
		if !Lasts(at.Kind) {
			continue
		}
		order := 1
		for len(fresh) > 0 {
			if order = byName(fresh[0], at); order > 0 {
				break
			}
			add(fresh[0])
			if fresh = fresh[1:]; order == 0 {
				break
			}
		}
		if order != 0 {
			all = append(all, at)
		}
	}
	for _, at := range fresh {
		add(at)
	}
	s.list = all
	return all
}

func byName(a, b Status) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}
