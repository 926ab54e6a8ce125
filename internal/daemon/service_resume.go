package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// resume initializes the checks with the state of the data planes. The health of real
// servers is saved with a delay, and not at all by a process that is killed; but the
// engine stores each state before it applies it. A real server that was out stays out
// until it passes its checks, and the others stay in until they fail them.
func (s *services) resume(w model.Desired) error {
	record, err := s.cfg.Store.Load()
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	out := s.takenOut(w)
	wanted := map[string]bool{}
	for _, v := range w.Services {
		wanted[v.Name] = true
	}
	inUse := make([]model.VirtualService, 0, len(record.Applied.Services))
	for _, v := range record.Applied.Services {
		if !wanted[v.Name] {
			continue
		}
		v.Reals = slices.DeleteFunc(slices.Clone(v.Reals),
			func(r model.RealServer) bool { return out[pool.Key{Service: v.Name, At: r.At(0)}] })
		inUse = append(inUse, v)
	}
	noted := slices.DeleteFunc(s.savedHealth, func(one health.Remembered) bool { return !wanted[one.Service] })
	s.health.Import(noted, inUse)
	s.savedHealth = nil
	return nil
}

// takenOut returns the real servers that are out, or may be, for another reason than
// their checks. The state of the data planes says nothing about the checks of those.
func (s *services) takenOut(w model.Desired) map[pool.Key]bool {
	out := map[pool.Key]bool{}
	for key := range s.drains {
		out[key] = true
	}
	for _, v := range w.Services {
		for _, r := range v.Reals {
			if r.State == model.RealDown {
				out[pool.Key{Service: v.Name, At: netip.AddrPortFrom(r.Address, r.Port)}] = true
			}
		}
	}
	return out
}

// forgetHealth deletes the health of services that are no longer desired, so that a
// new service with the name starts without it.
func (s *services) forgetHealth(before, now model.Desired) {
	for _, v := range before.Services {
		if !slices.ContainsFunc(now.Services, func(o model.VirtualService) bool { return o.Name == v.Name }) {
			s.health.Forget(v.Name)
		}
	}
}
