package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// target is the state to apply, and the pools of its services.
type target struct {
	model.State
	pools map[string]*pool.Pool
}

// state returns the state that the host must have now, for a desired state.
func (d *Daemon) state(w model.Desired) model.State {
	s := d.hostState(w)
	s.Services = d.completed(w, d.poolsOf(w, s.Endpoints, nil), nil)
	return s
}

// targetOf does the same as state, and starts the checks of new real servers. If only
// is not nil, it updates only these services.
func (d *Daemon) targetOf(w model.Desired, only map[string]bool) target {
	s := d.hostState(w)
	pools := d.poolsOf(w, s.Endpoints, only)
	resolved := make([]model.VirtualService, 0, len(pools))
	for _, v := range w.Services {
		if p := pools[v.Name]; p != nil {
			resolved = append(resolved, p.Resolved)
		}
	}
	d.warn("check the real servers", d.health.Set(resolved))
	s.Services = d.completed(w, pools, only)
	return target{s, pools}
}

// completed adds the results of the checks to the pools of the services in only, or of
// all if it is nil. It returns all services as the data planes must have them.
func (d *Daemon) completed(w model.Desired, pools map[string]*pool.Pool, only map[string]bool) []model.VirtualService {
	now := time.Now()
	var all []model.VirtualService
	for _, v := range w.Services {
		p := pools[v.Name]
		if p == nil {
			continue
		}
		if before := d.services.pools[v.Name]; before != p {
			full, checked := d.health.Effective(p.Resolved)
			p.Complete(full, checked, before, now)
		}
		all = append(all, p.Full)
	}
	return all
}

// applyDesired applies a desired state. Sandboxes that services select may get their
// addresses only by that: then it applies a second step. New real servers are checked
// once they can be reached.
func (d *Daemon) applyDesired(w model.Desired) error {
	defer d.health.Hold()()
	want := d.targetOf(w, nil)
	if err := d.applyTarget(want); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.Services, pool.HasSelector) {
		return nil
	}
	if next := d.targetOf(w, nil); !slices.EqualFunc(next.Services, want.Services, model.VirtualService.Equal) {
		if err := d.applyTarget(next); err != nil {
			d.note(api.Event{Kind: api.Unhealed, Object: "services", Detail: err.Error()})
		}
	}
	return nil
}

// applyTarget applies the target with the engine, and records the result.
func (d *Daemon) applyTarget(want target) error {
	ctx, cancel := context.WithTimeout(d.life, applyLimit)
	defer cancel()
	began := time.Now()
	full, err := d.engine.Set(ctx, want.State)
	d.cfg.Meter.Applied(time.Since(began), err)
	if err != nil {
		return err
	}
	d.full = full
	before := d.services.pools
	d.setPools(want.pools)
	d.reportEnded(before, want.pools)
	return nil
}

// reapply applies the current state of some services' real servers to the data planes.
// The desired state stays the same; only notes are written.
func (d *Daemon) reapply(names ...string) error {
	only := map[string]bool{}
	for _, name := range names {
		only[name] = true
	}
	if err := d.applyTarget(d.targetOf(d.desired, only)); err != nil {
		return err
	}
	for _, name := range names {
		delete(d.services.dirty, name)
	}
	d.wakeHealer()
	d.changed()
	return nil
}

// setPools records the pools that the data planes now have, and reports what has
// changed.
func (d *Daemon) setPools(pools map[string]*pool.Pool) {
	s := &d.services
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
			if key := (pool.Key{Service: name, At: m.At}); d.beginDrain(key, p, m, now) {
				touched = append(touched, key)
			}
		}
		events, toggled := p.ChangesSince(was)
		for _, e := range events {
			d.note(e)
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
	d.saveDrains(touched...)
	s.wake() // there may be new drains
	s.countedAt = time.Time{}
	s.observeAgain()
}

// beginDrain records the drain of a member that has none, and reports whether it did.
func (d *Daemon) beginDrain(key pool.Key, p *pool.Pool, m pool.Member, now time.Time) bool {
	if m.Status != api.RealDraining || d.services.drains[key] != nil {
		return false
	}
	d.services.drains[key] = &pool.Drain{Cause: m.Cause, Since: now, Deadline: pool.Deadline(now, 0, p.Spec.Drain),
		Endpoint: m.Endpoint, Leaving: m.Leaving, Real: m.RealServer}
	return true
}

// healthChanged receives the results of the checks.
func (d *Daemon) healthChanged(b health.Batch) {
	d.services.batchMu.Lock()
	defer d.services.batchMu.Unlock()
	d.services.batches = append(d.services.batches, b)
	d.services.wake()
}

// takeHealthChanges marks services as dirty if the results of their checks have changed.
// It reports no events: setPools does that when the data planes have the change.
func (d *Daemon) takeHealthChanges() {
	s := &d.services
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

// rebalance applies what has changed about real servers. A service that fails does not
// stop the others.
func (d *Daemon) rebalance() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takeHealthChanges()
	names := slices.Collect(maps.Keys(d.services.dirty)) // in random order, so that each is tried at some time
	if len(names) == 0 {
		return nil
	}
	err := d.reapply(names...)
	if err == nil {
		return nil
	}
	var failed error
	for i, name := range names {
		if len(names) > 1 && i < maxSingly {
			err = d.reapply(name)
		}
		if err != nil {
			d.stuck(name, err)
			failed = err
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("apply what has changed about real servers: %w", failed)
}

// maxSingly is the number of services that are applied one by one after a failure,
// while other requests wait.
const maxSingly = 20

// stuck records that the data planes still have an earlier state of a service. It
// reports each cause once.
func (d *Daemon) stuck(name string, err error) {
	problem := "a change of its real servers could not be applied, and the earlier state is still in use: " +
		err.Error()
	if d.services.stuck[name] != problem {
		d.services.stuck[name] = problem
		d.note(api.Event{Kind: api.Unhealed, Object: "service " + name, Detail: problem})
	}
}
