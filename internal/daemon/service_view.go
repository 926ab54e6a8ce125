package daemon

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// viewServices returns the services with these names, or all if there are none, sorted
// by name.
func (s *services) viewServices(names ...string) []api.ServiceView {
	on := map[string]model.Plane{}
	for _, v := range s.full.Services {
		on[v.Name] = v.Plane
	}
	all := []api.ServiceView{}
	for _, v := range s.desired.Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, s.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byServiceName)
	return all
}

func (s *services) viewService(v model.VirtualService, on model.Plane) api.ServiceView {
	shown := api.ServiceView{VirtualService: v.Clone(), PlaneInUse: on, Problem: s.problems[serviceProblem(v.Name)],
		Servers: []api.RealView{}}
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
