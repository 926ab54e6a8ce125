package services

import (
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/kernel/rawtcp"
)

// setPools records the pools that the data planes now have, and reports what has
// changed.
func (s *Services) setPools(pools map[string]*pool.Pool) {
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
			s.state.Note(e)
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
	s.woken.Send() // there may be new drains
	s.flows.readAt = time.Time{}
	s.observed.Send()
	s.updateServers()
}

// beginDrain records the drain of a member that has none, and reports whether it did.
func (s *Services) beginDrain(key pool.Key, p *pool.Pool, m pool.Member, now time.Time) bool {
	if m.Status != api.RealDraining || s.drains[key] != nil {
		return false
	}
	s.drains[key] = &pool.Drain{Cause: m.Cause, Since: now, Deadline: pool.Deadline(now, 0, p.Spec.Drain),
		Endpoint: m.Endpoint, Leaving: m.Leaving, Real: m.RealServer}
	return true
}

// reportEnded reports how many connections of clients the last step has reset, per
// real server, or per service if the real server is no longer known. pools are the
// pools before and after the step. If clients are still being reset, it reports later.
func (s *Services) reportEnded(pools ...map[string]*pool.Pool) {
	s.cfg.Resets.Report(func() {
		all := map[string]rawtcp.Ended{}
		for _, e := range s.cfg.Flows.TCP().TakeEnded() {
			object := pool.ObjectOf(e.Frontend, e.Real, pools)
			sum := all[object]
			sum.Connections += e.Connections
			sum.Silent += e.Silent
			all[object] = sum
		}
		for _, object := range slices.Sorted(maps.Keys(all)) {
			s.state.Note(api.Event{Kind: api.ClientsReset, Object: object, Detail: all[object].Text()})
		}
	})
}
