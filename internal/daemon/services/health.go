package services

import (
	"context"
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/health"
)

// containerHealth implements the checks of type docker.
func (s *Services) containerHealth(_ context.Context, endpoint string) (healthy bool, detail string, err error) {
	s.state.Lock()
	defer s.state.Unlock()
	a, attached := s.state.Desired().Attachment(endpoint)
	c, known := s.containers[a.Ref]
	switch {
	case !attached:
		return false, "", fmt.Errorf("it is not a sandbox that is attached on this host: use another check")
	case !known:
		return false, "",
			fmt.Errorf("no container engine has reported sandbox %s: start its container engine, or use another check",
				a.Ref)
	case c.Health == "":
		return false, "", fmt.Errorf("container %s has no health check: add one, or use another check", c.Name)
	}
	return c.Health == "healthy", "the container is " + c.Health, nil
}

// healthChanged receives the results of the checks.
func (s *Services) healthChanged(b health.Batch) {
	s.batchMu.Lock()
	defer s.batchMu.Unlock()
	s.batches = append(s.batches, b)
	s.woken.Send()
}

// takeHealthChanges marks services as dirty if the results of their checks have changed.
// It reports no events: setPools does that when the data planes have the change.
func (s *Services) takeHealthChanges() {
	s.batchMu.Lock()
	batches := s.batches
	s.batches = nil
	s.batchMu.Unlock()
	for _, b := range batches {
		for _, name := range b.Services {
			s.dirty[name] = true
		}
		s.unsaved = true
	}
}

// reportStuck records that the data planes still have an earlier state of a service. It
// reports each cause once.
func (s *Services) reportStuck(name string, err error) {
	problem := "a change of its real servers could not be applied, and the earlier state is still in use: " +
		err.Error()
	if s.stuck[name] != problem {
		s.stuck[name] = problem
		s.state.Note(api.Event{Kind: api.Unhealed, Object: "service " + name, Detail: problem})
	}
}
