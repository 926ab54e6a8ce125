package daemon

import (
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
)

// serviceStats reads the counters of the data planes.
func (d *Daemon) serviceStats() []api.ServiceStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countFlows()
	all := []api.ServiceStats{}
	for _, v := range d.viewServices() {
		checks := d.health.CountsOf(v.Name)
		s := api.ServiceStats{Service: v.Name, Plane: v.PlaneInUse, Status: v.Status, Reals: []api.RealStats{}}
		for _, r := range v.Servers {
			at := netip.AddrPortFrom(r.Address, r.Port)
			one := api.RealStats{Real: at, State: r.State, Weight: r.Weight,
				Transitions: d.services.transitions[pool.Key{Service: v.Name, At: at}], Live: r.Flows}
			if c, known := checks[at]; known && (c.Made() > 0 || c.Ejected > 0) {
				one.Checks = &c
			}
			if c, counted := d.services.counts[v.Name][at]; counted {
				one.Flows, one.Packets, one.Bytes = &c.Begun, &c.Packets, &c.Bytes
			}
			s.Reals = append(s.Reals, one)
		}
		all = append(all, s)
	}
	return all
}
