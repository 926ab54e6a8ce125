package daemon

import (
	"net/netip"

	"fairlead/internal/health"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"
)

// ServiceStats are the counters of a virtual service.
type ServiceStats struct {
	Service string        `json:"service"`
	Plane   model.Plane   `json:"plane,omitempty"`
	Status  ServiceStatus `json:"status"`
	Reals   []RealStats   `json:"reals"`
}

// RealStats are the counters of a real server.
type RealStats struct {
	// Real is its address. Port 0 is the port that the client has connected to.
	Real   netip.AddrPort `json:"real"`
	State  RealStatus     `json:"state"`
	Weight int            `json:"weight"`
	// Transitions is how often the checks have taken it out of service or brought it
	// back.
	Transitions uint64 `json:"transitions"`
	// Checks counts its checks; nil if there were none.
	Checks *health.Counts `json:"checks,omitempty"`
	// Live is the number of its open flows, Flows the number of all flows that it got.
	// A value is nil if the data plane does not count it.
	Live    *uint64        `json:"live,omitempty"`
	Flows   *uint64        `json:"flows,omitempty"`
	Packets *counter.InOut `json:"packets,omitempty"`
	Bytes   *counter.InOut `json:"bytes,omitempty"`
}

// serviceStats reads the counters of the data planes.
func (d *Daemon) serviceStats() []ServiceStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countFlows()
	all := []ServiceStats{}
	for _, v := range d.viewServices() {
		checks := d.health.CountsOf(v.Name)
		s := ServiceStats{Service: v.Name, Plane: v.PlaneInUse, Status: v.Status, Reals: []RealStats{}}
		for _, r := range v.Servers {
			at := netip.AddrPortFrom(r.Address, r.Port)
			one := RealStats{Real: at, State: r.State, Weight: r.Weight, Transitions: d.services.transitions[realKey{v.Name, at}], Live: r.Flows}
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
