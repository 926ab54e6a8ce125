package daemon

import (
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
)

// stats reads the counters of the data planes.
func (s *services) stats() []api.ServiceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows.read()
	all := []api.ServiceStats{}
	for _, v := range s.viewServices() {
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
	return all
}
