package daemon

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/model"
)

// check finds the mistakes that only all wishes together show: what two claim,
// and what drivers and ways refuse. Other errors are returned.
func (t *draft) check(before, next model.Desired) error {
	known := map[string]bool{}
	for _, err := range flat(whole(before).Validate()) {
		known[err.Error()] = true // no fault of the Spec's
	}
	for _, err := range flat(whole(next).Validate()) {
		if !known[err.Error()] {
			t.mistake(t.blame(err), err)
		}
	}
	if len(t.mistakes) > 0 {
		return nil
	}
	// Networks that nothing is attached to yet are checked by their drivers, too.
	s := t.state(next)
	for _, n := range t.spec.Networks {
		if _, used := s.Network(n.Name); !used {
			s.Networks = append(s.Networks, n)
		}
	}
	_, err := t.engine.Plan(s)
	t.mistakes = t.blamed(err)
	if len(t.mistakes) == 0 {
		return err
	}
	return nil
}

// whole is the state that wishes would be if all sandboxes were there.
func whole(w model.Desired) model.State {
	s := model.State{Networks: w.Networks, Publishes: w.Publishes, Services: w.Services}
	for _, a := range w.Attachments {
		s.Endpoints = append(s.Endpoints, placed(a))
	}
	return s
}

// flat returns the errors that were joined to one.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, flat(one)...)
	}
	return all
}

// blamed returns the mistakes of a Spec that an error tells, none if it is
// about something else as well.
func (t *draft) blamed(err error) Mistakes {
	var all Mistakes
	for _, one := range flat(err) {
		var taken *model.PortTakenError
		if errors.As(one, &taken) {
			one = taken
		}
		at := t.blame(one)
		if at == "" {
			return nil
		}
		all = append(all, Mistake{at, one.Error()})
	}
	return all
}

// blame returns the part of the Spec that an error is about, by the name that
// it begins with; empty if there is none.
func (t *draft) blame(err error) string {
	begins := func(with string) bool { return strings.HasPrefix(err.Error(), with) }
	for i, n := range t.spec.Networks {
		if begins("network " + n.Name + ": ") {
			return fmt.Sprintf("networks[%d]", i)
		}
	}
	if at := t.blameService(err.Error()); at != "" {
		return at
	}
	for i, name := range t.names {
		if name == "" {
			continue
		}
		for j, p := range t.spec.Attachments[i].Publishes {
			p.Endpoint = name
			// The way may have been chosen meanwhile.
			without, _, _ := strings.Cut(p.String(), " via ")
			if begins("publish " + without + " via ") {
				return fmt.Sprintf("attachments[%d].publishes[%d]", i, j)
			}
		}
		if begins("endpoint " + name + ": ") {
			return fmt.Sprintf("attachments[%d]", i)
		}
	}
	return ""
}
