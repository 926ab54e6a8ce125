package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/alarm"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// New returns Services that have no pools yet.
func New(cfg Config) *Services {
	s := &Services{cfg: cfg, state: cfg.State, flows: &flowCounts{state: cfg.State, count: cfg.CountReals},
		transitions: map[pool.Key]uint64{}, needed: make(chan struct{}),
		pools: map[string]*pool.Pool{}, drains: map[pool.Key]*pool.Drain{}, containers: map[string]pool.Container{},
		dirty: map[string]bool{}, stuck: map[string]string{}, woken: alarm.NewSignal(),
		observed: alarm.NewSignal(), ServersChanged: alarm.NewSignal()}
	s.health = health.NewMonitor(health.Options{Means: health.Means{Container: s.containerHealth},
		Dial: cfg.DialReal, Changed: s.healthChanged})
	return s
}

// Run checks real servers and applies what changes about them, until ctx ends. The mutex of the state must not be
// locked.
func (s *Services) Run(ctx context.Context) {
	b := &balancer{state: s.state, services: s, failed: heal.Retries{}}
	var all sync.WaitGroup
	for _, run := range []func(context.Context){s.health.Run, b.run, b.observe, b.followContainers} {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
}

// Resume initializes the checks with the state of the data planes. The health of real
// servers is saved with a delay, and not at all by a process that is killed; but the
// engine stores each state before it applies it. A real server that was out stays out
// until it passes its checks, and the others stay in until they fail them.
func (s *Services) Resume(w model.Desired) error {
	record, err := s.cfg.LoadRecord()
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
func (s *Services) takenOut(w model.Desired) map[pool.Key]bool {
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

// ForgetHealth deletes the health of services that are no longer desired, so that a
// new service with the name starts without it.
func (s *Services) ForgetHealth(before, now model.Desired) {
	for _, v := range before.Services {
		if !slices.ContainsFunc(now.Services, func(o model.VirtualService) bool { return o.Name == v.Name }) {
			s.health.Forget(v.Name)
		}
	}
}
