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
}

// statuses gathers the status of all objects.
type statuses map[[2]string]*Status

func (s statuses) of(kind, name string) *Status {
	key := [2]string{kind, name}
	if s[key] == nil {
		s[key] = &Status{Kind: kind, Name: name, State: Enabled}
	}
	return s[key]
}

// add records what a provider knows of an object.
func (s statuses) add(known Status) {
	for _, reason := range known.Reasons {
		if known.State == Disabled {
			s.disable(known.Kind, known.Name, reason)
		} else {
			s.warn(known.Kind, known.Name, reason)
		}
	}
}

// disable records why the object cannot be used.
func (s statuses) disable(kind, name, reason string) {
	at := s.of(kind, name)
	at.State = Disabled
	at.Reasons = append(at.Reasons, reason)
}

// warn records what is doubtful about the object.
func (s statuses) warn(kind, name, reason string) {
	at := s.of(kind, name)
	if at.State == Enabled {
		at.State = Warning
	}
	at.Reasons = append(at.Reasons, reason)
}

func (s statuses) sorted() []Status {
	var all []Status
	for _, at := range s {
		all = append(all, *at)
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}
