package daemon

import (
	"context"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/health"
	"fairlead/internal/lock"
	"fairlead/internal/model"
)

// target is the state to apply, and the pools of its services. Its services are checked already; undo restores the
// checks before.
type target struct {
	model.State
	pools map[string]*pool.Pool
	undo  func()
}

// stateOf returns the state that the host must have now, for a desired state.
func (s *services) stateOf(w model.Desired) model.State {
	host := s.networks.hostState(w)
	host.Services = s.completed(w, s.poolsOf(w, host.Endpoints, s.leased(w, host), nil), nil)
	return host
}

// leased returns the endpoints with the addresses that they have, or will have once the
// state is applied.
func (s *services) leased(w model.Desired, host model.State) []model.Endpoint {
	if !slices.ContainsFunc(w.Services, pool.HasSelector) {
		return s.full.Endpoints
	}
	endpoints, err := s.engine.Lease(host)
	if err != nil { // applying fails too, and reports it
		return s.full.Endpoints
	}
	return endpoints
}

// targetOf does the same as stateOf for endpoints with known addresses, and starts the
// checks of new real servers. If only is not nil, it updates only these services.
func (s *services) targetOf(w model.Desired, host model.State, known []model.Endpoint, only map[string]bool) target {
	pools := s.poolsOf(w, host.Endpoints, known, only)
	resolved := make([]model.VirtualService, 0, len(pools))
	for _, v := range w.Services {
		if p := pools[v.Name]; p != nil {
			resolved = append(resolved, p.Resolved)
		}
	}
	undo, err := s.health.Try(resolved)
	s.warn("check the real servers", err)
	host.Services = s.completed(w, pools, only)
	return target{host, pools, undo}
}

// completed adds the results of the checks to the pools of the services in only, or of
// all if it is nil. It returns all services as the data planes must have them.
func (s *services) completed(w model.Desired, pools map[string]*pool.Pool,
	only map[string]bool) []model.VirtualService {
	now := time.Now()
	var all []model.VirtualService
	for _, v := range w.Services {
		p := pools[v.Name]
		if p == nil {
			continue
		}
		if before := s.pools[v.Name]; before != p {
			full, checked := s.health.Effective(p.Resolved)
			p.Complete(full, checked, before, now)
		}
		all = append(all, p.Full)
	}
	return all
}

// apply applies a desired state. New real servers are checked once they can be reached.
// If a service cannot have the real servers that it newly selects, the state is applied
// without them: a service must not keep a sandbox from being attached. Returns an
// *engine.UnopenedError if the state needs ports that the proxy has not opened yet. If the proxy cannot open them, no
// other state is tried: it would need them, too, and the step would be repeated for ever.
func (s *services) apply(w model.Desired) error {
	defer s.health.Hold()()
	host := s.networks.hostState(w)
	want := s.targetOf(w, host, s.leased(w, host), nil)
	err := s.applyTarget(want)
	if err == nil || sockets.AreUnopened(err) || sockets.AreRefused(err) {
		return err
	}
	without := s.targetOf(w, host, s.full.Endpoints, nil)
	if slices.EqualFunc(without.Services, want.Services, model.VirtualService.Equal) {
		without.undo()
		return err
	}
	if other := s.applyTarget(without); other != nil {
		return sockets.Final(other, err)
	}
	s.note(api.Event{Kind: api.Unhealed, Object: "services", Detail: err.Error()})
	return nil
}

// applyTarget applies the target with the engine, and records the result. If that fails, it restores the checks.
func (s *services) applyTarget(want target) error {
	lock.Assert(s.repeats, "a state is applied outside of once: nothing would repeat it")
	ctx, cancel := context.WithTimeout(s.life, applyLimit)
	defer cancel()
	began := time.Now()
	full, err := s.engine.Set(ctx, want.State)
	s.cfg.Meter.Applied(time.Since(began), err)
	if err != nil {
		want.undo()
		return err
	}
	s.full = full
	before := s.pools
	s.setPools(want.pools)
	s.reportEnded(before, want.pools)
	return nil
}

// reapply applies the current state of some services' real servers to the data planes.
// The desired state stays the same; only notes are written.
func (s *services) reapply(names ...string) error {
	only := map[string]bool{}
	for _, name := range names {
		only[name] = true
	}
	want := s.targetOf(s.desired, s.networks.hostState(s.desired), s.full.Endpoints, only)
	if err := s.applyTarget(want); err != nil {
		return err
	}
	for _, name := range names {
		delete(s.dirty, name)
	}
	s.wakeHealer()
	s.changed()
	return nil
}

// setPools records the pools that the data planes now have, and reports what has
// changed.
func (s *services) setPools(pools map[string]*pool.Pool) {
	before := s.pools
	s.pools = pools
	now := time.Now()
	var touched []pool.Key
	for name, p := range pools {
		was := before[name]
		if was == p {
			continue
		}
		delete(s.stuck, name)
		for _, m := range p.Members {
			if key := (pool.Key{Service: name, At: m.At}); s.beginDrain(key, p, m, now) {
				touched = append(touched, key)
			}
		}
		events, toggled := p.ChangesSince(was)
		for _, e := range events {
			s.note(e)
		}
		for _, at := range toggled {
			s.transitions[pool.Key{Service: name, At: at}]++
		}
	}
	for key := range s.drains {
		p := pools[key.Service]
		if m := p.Member(key.At); m == nil || m.Status != api.RealDraining && m.Status != api.RealDrained {
			delete(s.drains, key)
			touched = append(touched, key)
		}
	}
	for name := range s.stuck {
		if pools[name] == nil {
			delete(s.stuck, name)
		}
	}
	for key := range s.transitions {
		if pools[key.Service].Member(key.At) == nil {
			delete(s.transitions, key)
		}
	}
	s.saveDrains(touched...)
	s.wake() // there may be new drains
	s.flows.readAt = time.Time{}
	s.observeAgain()
	s.updateServers()
}

// beginDrain records the drain of a member that has none, and reports whether it did.
func (s *services) beginDrain(key pool.Key, p *pool.Pool, m pool.Member, now time.Time) bool {
	if m.Status != api.RealDraining || s.drains[key] != nil {
		return false
	}
	s.drains[key] = &pool.Drain{Cause: m.Cause, Since: now, Deadline: pool.Deadline(now, 0, p.Spec.Drain),
		Endpoint: m.Endpoint, Leaving: m.Leaving, Real: m.RealServer}
	return true
}

// healthChanged receives the results of the checks.
func (s *services) healthChanged(b health.Batch) {
	s.batchMu.Lock()
	defer s.batchMu.Unlock()
	s.batches = append(s.batches, b)
	s.wake()
}

// takeHealthChanges marks services as dirty if the results of their checks have changed.
// It reports no events: setPools does that when the data planes have the change.
func (s *services) takeHealthChanges() {
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
func (s *services) reportStuck(name string, err error) {
	problem := "a change of its real servers could not be applied, and the earlier state is still in use: " +
		err.Error()
	if s.stuck[name] != problem {
		s.stuck[name] = problem
		s.note(api.Event{Kind: api.Unhealed, Object: "service " + name, Detail: problem})
	}
}
