package services

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/state"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// views returns the services with these names, or all if there are none, sorted
// by name.
func (s *Services) views(names ...string) []api.ServiceView {
	on := map[string]model.Plane{}
	for _, v := range s.state.Applied().Services {
		on[v.Name] = v.Plane
	}
	all := []api.ServiceView{}
	for _, v := range s.state.Desired().Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, s.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byName)
	return all
}

func (s *Services) viewService(v model.VirtualService, on model.Plane) api.ServiceView {
	shown := api.ServiceView{VirtualService: v.Clone(), PlaneInUse: on,
		Problem: s.state.Problems[state.OfService(v.Name)], Servers: []api.RealView{}}
	p := s.pools[v.Name]
	if shown.Problem != "" || p == nil {
		shown.Status = api.ServiceFailed
		return shown
	}
	shown.Status, shown.Problem, shown.Own = p.Status(), s.stuck[v.Name], p.Own()
	checks := map[netip.AddrPort]health.ServerStatus{}
	for _, c := range s.health.StatusOf(p.Resolved).Servers {
		checks[c.Real] = c
	}
	for _, m := range p.Members {
		if shown.Status != api.ServiceSorry || m.At != v.Sorry {
			key := pool.Key{Service: v.Name, At: m.At}
			shown.Servers = append(shown.Servers, p.View(m, checks[m.At], s.drains[key], s.flows.live(key)))
		}
	}
	if shown.Status == api.ServiceSorry {
		shown.Servers = append(shown.Servers, api.RealView{Address: v.Sorry.Addr(), Port: v.Sorry.Port(), Weight: 1,
			Share: 100, State: api.RealSorry, Cause: p.QuorumText(), Since: p.Since,
			Flows: s.flows.live(pool.Key{Service: v.Name, At: v.Sorry})})
	}
	slices.SortStableFunc(shown.Servers, func(a, b api.RealView) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	return shown
}

func byName(a, b api.ServiceView) int { return strings.Compare(a.Name, b.Name) }

// absent returns the error for a service that does not exist: a Fault with code NotFound.
func absent(name string) error {
	return api.Faultf(api.NotFound,
		"there is no service %q: create it with `fairlead service add`, or list them with `fairlead service ls`", name)
}

// Stats reads the counters of the data planes, and those of the checks. It locks the mutex of the state.
func (s *Services) Stats() ([]api.ServiceStats, health.Counters) {
	s.state.Lock()
	defer s.state.Unlock()
	s.flows.read()
	all := []api.ServiceStats{}
	for _, v := range s.views() {
		checks := s.health.CountsOf(v.Name)
		counted := api.ServiceStats{Service: v.Name, Plane: v.PlaneInUse, Status: v.Status, Reals: []api.RealStats{}}
		for _, r := range v.Servers {
			at := netip.AddrPortFrom(r.Address, r.Port)
			one := api.RealStats{Real: at, State: r.State, Weight: r.Weight,
				Transitions: s.transitions[pool.Key{Service: v.Name, At: at}], Live: r.Flows}
			if c, known := checks[at]; known && (c.Made() > 0 || c.Ejected > 0) {
				one.Checks = &c
			}
			s.flows.counts.AddReal(&one, v)
			counted.Reals = append(counted.Reals, one)
		}
		all = append(all, counted)
	}
	return all, s.health.Counters()
}
