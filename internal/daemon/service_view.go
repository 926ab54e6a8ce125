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
func (d *Daemon) viewServices(names ...string) []api.ServiceView {
	on := map[string]model.Plane{}
	for _, v := range d.full.Services {
		on[v.Name] = v.Plane
	}
	all := []api.ServiceView{}
	for _, v := range d.desired.Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, d.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byServiceName)
	return all
}

func (d *Daemon) viewService(v model.VirtualService, on model.Plane) api.ServiceView {
	s := api.ServiceView{VirtualService: v.Clone(), PlaneInUse: on, Problem: d.problems[serviceProblem(v.Name)],
		Servers: []api.RealView{}}
	p := d.services.pools[v.Name]
	if s.Problem != "" || p == nil {
		s.Status = api.ServiceFailed
		return s
	}
	s.Status, s.Problem = p.Status(), d.services.stuck[v.Name]
	checks := map[netip.AddrPort]health.ServerStatus{}
	for _, c := range d.health.StatusOf(p.Resolved).Servers {
		checks[c.Real] = c
	}
	for _, m := range p.Members {
		if s.Status != api.ServiceSorry || m.At != v.Sorry {
			key := pool.Key{Service: v.Name, At: m.At}
			s.Servers = append(s.Servers, p.View(m, checks[m.At], d.services.drains[key], d.flowsOf(key)))
		}
	}
	if s.Status == api.ServiceSorry {
		s.Servers = append(s.Servers, api.RealView{Address: v.Sorry.Addr(), Port: v.Sorry.Port(), Weight: 1, Share: 100,
			State: api.RealSorry, Cause: p.QuorumText(), Since: p.Since,
			Flows: d.flowsOf(pool.Key{Service: v.Name, At: v.Sorry})})
	}
	slices.SortStableFunc(s.Servers, func(a,
		b api.RealView) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	return s
}
