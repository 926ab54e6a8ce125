package gateway

import (
	"cmp"
	"slices"
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

// statuses gathers the status of all objects. Those of the kinds that a build keeps stay
// until the object is built again; all others are of one build.
type statuses struct {
	lasting, others map[object]*Status
	// touched are those of the lasting ones that this build may have changed.
	touched map[object]bool
	// list is the result of the last build.
	list []Status
}

func newStatuses() statuses { return statuses{lasting: map[object]*Status{}} }

func lasts(kind string) bool { return kind == "router" || kind == "service" || kind == "middleware" }

// begin forgets the statuses of the changed objects, and returns the others that do not
// last.
func (s *statuses) begin(changed map[object]bool) (others map[object]*Status) {
	others = s.others
	s.others, s.touched = map[object]*Status{}, map[object]bool{}
	for o := range changed {
		s.forget(o)
	}
	return others
}

// forget removes the status of an object that is built again.
func (s *statuses) forget(o object) {
	if lasts(o.kind) {
		s.touched[o] = true
		delete(s.lasting, o)
	}
}

func (s *statuses) of(kind, name string) *Status {
	key, to := object{kind, name}, s.those(kind)
	if lasts(kind) {
		s.touched[key] = true
	}
	if to[key] == nil {
		to[key] = &Status{Kind: kind, Name: name, State: Enabled}
	}
	return to[key]
}

// those returns the statuses with the kind's.
func (s *statuses) those(kind string) map[object]*Status {
	if lasts(kind) {
		return s.lasting
	}
	return s.others
}

// reason returns the first reason why an object is disabled, empty if it is not or is not known.
func (s *statuses) reason(kind, name string) string {
	if at := s.those(kind)[object{kind, name}]; at != nil && at.State == Disabled {
		return at.Reasons[0]
	}
	return ""
}

// add records what a provider knows of an object.
func (s *statuses) add(known Status) {
	if known.Rule != "" {
		s.of(known.Kind, known.Name).Rule = known.Rule
	}
	for _, reason := range known.Reasons {
		if known.State == Disabled {
			s.disable(known.Kind, known.Name, reason)
		} else {
			s.warn(known.Kind, known.Name, reason)
		}
	}
}

// disable records why the object cannot be used.
func (s *statuses) disable(kind, name, reason string) {
	at := s.of(kind, name)
	at.State = Disabled
	at.add(reason)
}

// warn records what is doubtful about the object.
func (s *statuses) warn(kind, name, reason string) {
	at := s.of(kind, name)
	if at.State == Enabled {
		at.State = Warning
	}
	at.add(reason)
}

// add adds a reason that is not known yet: it may hold at several entry points.
func (s *Status) add(reason string) {
	if !slices.Contains(s.Reasons, reason) {
		s.Reasons = append(s.Reasons, reason)
	}
}

// sorted returns all statuses in order. It takes those that this build did not touch from
// the last list, which has their order.
func (s *statuses) sorted() []Status {
	var fresh []Status
	for key := range s.touched {
		// One that is gone is empty: it only removes the last one.
		at := Status{Kind: key.kind, Name: key.name}
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
		if !lasts(at.Kind) {
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
