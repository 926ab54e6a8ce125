package services

import (
	"context"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/step"
	"fairlead/internal/model"
)

// Apply applies a desired state. New real servers are checked once they can be reached.
// If a service cannot have the real servers that it newly selects, the state is applied
// without them: a service must not keep a sandbox from being attached. Returns an
// *engine.UnopenedError if the state needs ports that the proxy has not opened yet. If the proxy cannot open them, no
// other state is tried: it would need them, too, and the step would be repeated for ever.
func (s *Services) Apply(w model.Desired) error {
	defer s.health.Hold()()
	host := s.cfg.Networks.HostState(w)
	want := s.targetOf(w, host, s.leased(w, host), nil)
	err := s.applyTarget(want)
	if err == nil || sockets.AreUnopened(err) || sockets.AreRefused(err) {
		return err
	}
	without := s.targetOf(w, host, s.state.Applied().Endpoints, nil)
	if slices.EqualFunc(without.Services, want.Services, model.VirtualService.Equal) {
		without.undo()
		return err
	}
	if other := s.applyTarget(without); other != nil {
		return sockets.Final(other, err)
	}
	s.state.Note(api.Event{Kind: api.Unhealed, Object: "services", Detail: err.Error()})
	return nil
}

// applyTarget applies the target with the engine, and records the result. If that fails, it restores the checks.
func (s *Services) applyTarget(want target) error {
	s.cfg.Steps.Assert("a state is applied outside of once: nothing would repeat it")
	ctx, cancel := context.WithTimeout(s.state.Life, step.Limit)
	defer cancel()
	began := time.Now()
	full, err := s.cfg.Engine.Set(ctx, want.State)
	s.cfg.Applied(time.Since(began), err)
	if err != nil {
		want.undo()
		return err
	}
	s.state.SetApplied(full)
	before := s.pools
	s.setPools(want.pools)
	s.reportEnded(before, want.pools)
	return nil
}

// reapply applies the current state of some services' real servers to the data planes.
// The desired state stays the same; only notes are written.
func (s *Services) reapply(names ...string) error {
	only := map[string]bool{}
	for _, name := range names {
		only[name] = true
	}
	w := s.state.Desired()
	want := s.targetOf(w, s.cfg.Networks.HostState(w), s.state.Applied().Endpoints, only)
	if err := s.applyTarget(want); err != nil {
		return err
	}
	for _, name := range names {
		delete(s.dirty, name)
	}
	s.state.Changed()
	return nil
}

// ReportEnded reports how many connections of clients a repair has reset.
func (s *Services) ReportEnded() { s.reportEnded(s.pools) }

// Prepare loads what new services need, once if the host refuses them. It locks the mutex of the state, but not while it
// loads. The caller calls done after it has applied the services.
func (s *Services) Prepare(services []model.VirtualService) (done func()) {
	s.state.Lock()
	fresh := slices.DeleteFunc(slices.Clone(services), func(v model.VirtualService) bool {
		_, known := s.state.Desired().Service(v.Name)
		return known || slices.ContainsFunc(s.prepared, v.Equal)
	})
	s.prepared = services
	s.state.Unlock()
	drop := s.cfg.Engine.Prepare(services, fresh)
	return func() { s.state.Warn("unload what no service has used", drop()) }
}
