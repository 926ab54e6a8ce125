package spec

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// check finds the conflicts between objects, which only show in the complete desired
// state.
func (t *Draft) check() {
	known := map[string]bool{}
	for _, err := range Flatten(completeState(t.before).Validate()) {
		known[err.Error()] = true // not a mistake of the Spec
	}
	for _, err := range Flatten(completeState(t.desired).Validate()) {
		if !known[err.Error()] {
			t.mistake(t.partOf(err), err)
		}
	}
}

// Trial returns the state with all networks of the Spec, because drivers also check
// networks without attachments.
func (t *Draft) Trial(s model.State) model.State {
	for _, n := range t.spec.Networks {
		if _, used := s.Network(n.Name); !used {
			s.Networks = append(s.Networks, n)
		}
	}
	return s
}

// completeState returns the state that would be applied if all sandboxes ran.
func completeState(w model.Desired) model.State {
	s := model.State{Networks: w.Networks, Publishes: w.Publishes, Services: w.Services}
	for _, a := range w.Attachments {
		s.Endpoints = append(s.Endpoints, withSandbox(a))
	}
	return s
}

// MistakesIn returns the mistakes of the Spec in an error, or nil if a part of the
// error is about something else.
func (t *Draft) MistakesIn(err error) api.Mistakes {
	var all api.Mistakes
	for _, one := range Flatten(err) {
		if taken, ok := errors.AsType[*model.PortTakenError](one); ok {
			one = taken
		}
		at := t.partOf(one)
		if at == "" {
			return nil
		}
		all = append(all, api.Mistake{At: at, Text: one.Error()})
	}
	return all
}

// partOf returns the part of the Spec that an error is about: the error text begins
// with the part's name. It is empty if there is none.
func (t *Draft) partOf(err error) string {
	begins := func(with string) bool { return strings.HasPrefix(err.Error(), with) }
	for i, n := range t.spec.Networks {
		if begins("network " + n.Name + ": ") {
			return fmt.Sprintf("networks[%d]", i)
		}
	}
	if at := t.servicePart(err.Error()); at != "" {
		return at
	}
	for i, name := range t.Names {
		if name == "" {
			continue
		}
		for j, p := range t.spec.Attachments[i].Publishes {
			p.Endpoint = name
			if begins(beginOf(p)) {
				return fmt.Sprintf("attachments[%d].publishes[%d]", i, j)
			}
		}
		if begins("endpoint " + name + ": ") {
			return fmt.Sprintf("attachments[%d]", i)
		}
	}
	return ""
}

// AtGateway returns the error of a gateway that could not be run, with its part of the Spec.
// It returns err if the Spec declares no gateway.
func AtGateway(s api.Spec, err error) error {
	if s.Gateway == nil {
		return err
	}
	return &api.Fault{Code: api.CodeOf(err), Err: api.Mistakes{{At: "gateway", Text: err.Error()}}}
}
