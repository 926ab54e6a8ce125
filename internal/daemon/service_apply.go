package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// target is what the host shall be brought to, and the pools in it.
type target struct {
	model.State
	pools map[string]*pool
}

// state is what the wishes want of the host now.
func (d *Daemon) state(w model.Desired) model.State {
	s := d.hostState(w)
	s.Services = d.completed(w, d.poolsOf(w, s.Endpoints, nil), nil)
	return s
}

// targetOf is as state, and begins to check what is new.
func (d *Daemon) targetOf(w model.Desired, only map[string]bool) target {
	s := d.hostState(w)
	pools := d.poolsOf(w, s.Endpoints, only)
	resolved := make([]model.VirtualService, 0, len(pools))
	for _, v := range w.Services {
		if p := pools[v.Name]; p != nil {
			resolved = append(resolved, p.resolved)
		}
	}
	d.warn("check the real servers", d.health.Set(resolved))
	s.Services = d.completed(w, pools, only)
	return target{s, pools}
}

// completed has the checks say what the planes shall do, of the services of
// only or of all for nil, and returns all.
func (d *Daemon) completed(w model.Desired, pools map[string]*pool, only map[string]bool) []model.VirtualService {
	now := time.Now()
	var all []model.VirtualService
	for _, v := range w.Services {
		p := pools[v.Name]
		if p == nil {
			continue
		}
		if before := d.services.pools[v.Name]; before != p {
			p.complete(d.health, before, now)
		}
		all = append(all, p.full)
	}
	return all
}

// complete adds to a pool what the checks say, in one look at them.
func (p *pool) complete(checks *health.Monitor, before *pool, now time.Time) {
	full, status := checks.Effective(p.resolved)
	p.full, p.health = full, status.Pool
	found := make(map[netip.AddrPort]health.ServerStatus, len(status.Servers))
	for _, s := range status.Servers {
		found[s.Real] = s
	}
	if p.since = now; before != nil && before.status() == p.status() {
		p.since = before.since
	}
	planned := make(map[netip.AddrPort]model.RealState, len(p.full.Reals))
	for i, r := range p.full.Reals {
		// Nobody answers the flows of one that drains and is down.
		if r.State == model.RealDraining && found[r.At(0)].State == model.RealDown {
			p.full.Reals[i].State = model.RealDown
		}
		planned[r.At(0)] = p.full.Reals[i].State
	}
	for i := range p.members {
		m := &p.members[i]
		m.shown = p.show(*m, found[m.at], planned[m.at])
	}
}

// reach brings the host to what the wishes want. What services select may have
// got its addresses by that: then one more step follows. Real servers that come
// are checked when what leads to them is there.
func (d *Daemon) reach(w model.Desired) error {
	defer d.health.Hold()()
	want := d.targetOf(w, nil)
	if err := d.set(want); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.Services, selects) {
		return nil
	}
	if next := d.targetOf(w, nil); !slices.EqualFunc(next.Services, want.Services, model.VirtualService.Equal) {
		if err := d.set(next); err != nil {
			d.note(Event{Kind: Unhealed, Object: "services", Detail: err.Error()})
		}
	}
	return nil
}

func selects(v model.VirtualService) bool {
	return slices.ContainsFunc(v.Reals, func(r model.RealServer) bool { return !r.Select.IsZero() })
}

// set has the engine do it, and notes what it has come to.
func (d *Daemon) set(want target) error {
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
	d.install(want.pools)
	d.reportEnded(before, want.pools)
	return nil
}

// reapply brings the planes to how the real servers of some services are now.
// The wishes are the same, and nothing is written but notes.
func (d *Daemon) reapply(names ...string) error {
	only := map[string]bool{}
	for _, name := range names {
		only[name] = true
	}
	if err := d.set(d.targetOf(d.desired, only)); err != nil {
		return err
	}
	for _, name := range names {
		delete(d.services.dirty, name)
	}
	d.holdsOther()
	d.changed()
	return nil
}

// install makes the pools ours, which the planes have, and tells what is
// otherwise than before.
func (d *Daemon) install(pools map[string]*pool) {
	s := &d.services
	before := s.pools
	s.pools = pools
	now := time.Now()
	var touched []realKey
	for name, p := range pools {
		was := before[name]
		if was == p {
			continue
		}
		delete(s.stuck, name)
		for _, m := range p.members {
			if key := (realKey{name, m.at}); d.beginDrain(key, p, m, now) {
				touched = append(touched, key)
			}
		}
		d.reportPool(was, p)
	}
	for key := range s.drains {
		p := pools[key.service]
		if m := p.member(key.at); m == nil || m.standing != RealDraining && m.standing != RealDrained {
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
		if pools[key.service].member(key.at) == nil {
			delete(s.transitions, key)
		}
	}
	d.keepDrains(touched...)
	s.wake() // there may be drains to watch
	s.countedAt = time.Time{}
	s.observeAgain()
}

// beginDrain notes the drain of a member that has none, and reports whether it
// had none.
func (d *Daemon) beginDrain(key realKey, p *pool, m member, now time.Time) bool {
	if m.standing != RealDraining || d.services.drains[key] != nil {
		return false
	}
	d.services.drains[key] = &Drain{Cause: m.cause, Since: now, Deadline: deadline(now, 0, p.spec.Drain), Endpoint: m.Endpoint, Leaving: m.leaving, Real: m.RealServer}
	return true
}

// healthChanged is told by the checks.
func (d *Daemon) healthChanged(b health.Batch) {
	d.services.telling.Lock()
	defer d.services.telling.Unlock()
	d.services.batches = append(d.services.batches, b)
	d.services.wake()
}

// drain takes what the checks have told. Nothing is said of it here: what the
// planes have come to by it is told when they have.
func (d *Daemon) drain() {
	s := &d.services
	s.telling.Lock()
	notified := s.batches
	s.batches = nil
	s.telling.Unlock()
	for _, b := range notified {
		for _, name := range b.Services {
			s.dirty[name] = true
		}
		s.unsaved = true
	}
}

// rebalance applies what has changed about real servers. What cannot be applied
// of one service does not hold up the others.
func (d *Daemon) rebalance() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drain()
	names := slices.Collect(maps.Keys(d.services.dirty)) // in no order, so that each has its turn
	if len(names) == 0 {
		return nil
	}
	err := d.reapply(names...)
	if err == nil {
		return nil
	}
	var failed error
	for i, name := range names {
		if len(names) > 1 && i < mostAlone {
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

// mostAlone bounds how many services are applied one by one, while others wait
// for the daemon.
const mostAlone = 20

// stuck notes that the planes still have a service as it was before, once for
// each cause.
func (d *Daemon) stuck(name string, err error) {
	problem := "its real servers are as they were before a change that could not be applied: " + err.Error()
	if d.services.stuck[name] != problem {
		d.services.stuck[name] = problem
		d.note(Event{Kind: Unhealed, Object: "service " + name, Detail: problem})
	}
}
