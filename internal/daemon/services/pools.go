package services

import (
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/state"
	"fairlead/internal/model"
)

// target is the state to apply, and the pools of its services. Its services are checked already; undo restores the
// checks before.
type target struct {
	model.State
	pools map[string]*pool.Pool
	undo  func()
}

// StateOf returns the state that the host must have now, for a desired state.
func (s *Services) StateOf(w model.Desired) model.State {
	host := s.cfg.Networks.HostState(w)
	host.Services = s.completed(w, s.poolsOf(w, host.Endpoints, s.leased(w, host), nil))
	return host
}

// leased returns the endpoints with the addresses that they have, or will have once the
// state is applied.
func (s *Services) leased(w model.Desired, host model.State) []model.Endpoint {
	if !slices.ContainsFunc(w.Services, pool.HasSelector) {
		return s.state.Applied().Endpoints
	}
	endpoints, err := s.cfg.Engine.Lease(host)
	if err != nil { // applying fails too, and reports it
		return s.state.Applied().Endpoints
	}
	return endpoints
}

// targetOf does the same as StateOf for endpoints with known addresses, and starts the
// checks of new real servers. If only is not nil, it updates only these services.
func (s *Services) targetOf(w model.Desired, host model.State, known []model.Endpoint, only map[string]bool) target {
	pools := s.poolsOf(w, host.Endpoints, known, only)
	resolved := make([]model.VirtualService, 0, len(pools))
	for _, v := range w.Services {
		if p := pools[v.Name]; p != nil {
			resolved = append(resolved, p.Resolved)
		}
	}
	undo, err := s.health.Try(resolved)
	s.state.Warn("check the real servers", err)
	host.Services = s.completed(w, pools)
	return target{host, pools, undo}
}

// completed adds the results of the checks to the pools that are new. It returns all
// services as the data planes must have them.
func (s *Services) completed(w model.Desired, pools map[string]*pool.Pool) []model.VirtualService {
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

// poolsOf computes the pools of a desired state, with the endpoints of a state. known are
// the endpoints with their addresses. If only is not nil, it computes only these and
// takes the others from the current pools.
func (s *Services) poolsOf(w model.Desired, endpoints, known []model.Endpoint,
	only map[string]bool) map[string]*pool.Pool {
	all := make(map[string]*pool.Pool, len(w.Services))
	var inputs func(string) pool.Inputs
	for _, v := range w.Services {
		if s.state.Problems[state.OfService(v.Name)] != "" {
			continue
		}
		before := s.pools[v.Name]
		if only != nil && before != nil && !before.Restored && !only[v.Name] {
			all[v.Name] = before
			continue
		}
		if inputs == nil {
			inputs = s.inputs(w, endpoints, known)
		}
		all[v.Name] = pool.New(v, before, inputs(v.Name))
	}
	return all
}

// inputs returns the inputs of the computation of pools.
func (s *Services) inputs(w model.Desired, endpoints, known []model.Endpoint) func(service string) pool.Inputs {
	found := pool.NewSandboxes(w.Attachments, endpoints, known, s.containers)
	now := time.Now()
	return func(service string) pool.Inputs {
		return pool.Inputs{Now: now, Selects: found.Selects, Owns: found.Owns, Alive: found.Alive,
			Drain: func(at netip.AddrPort) *pool.Drain { return s.drains[pool.Key{Service: service, At: at}] },
		}
	}
}
