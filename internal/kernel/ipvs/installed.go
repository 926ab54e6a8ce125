package ipvs

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Installed returns the virtual services of IPVS that have an address, without
// those for firewall marks.
func (h *Handle) Installed() ([]plan.Balanced, error) {
	b := &h.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if there, err := b.reach(h.ns); err != nil || !there {
		return nil, err
	}
	found, err := b.conn.Services()
	if err != nil {
		return nil, err
	}
	var all []plan.Balanced
	for _, s := range found {
		if s.Mark != 0 {
			continue
		}
		reals, err := b.conn.Destinations(s.ID)
		if err != nil {
			return nil, err
		}
		all = append(all, balancedOfIPVS(s, reals))
	}
	slices.SortFunc(all, func(a, b plan.Balanced) int { return a.Frontends[0].Compare(b.Frontends[0]) })
	return all, nil
}

func balancedOfIPVS(s Service, reals []Destination) plan.Balanced {
	v := fromIPVS(s, reals)
	return plan.Balanced{Proto: v.Proto, Frontends: []netip.AddrPort{s.At},
		Scheduler: model.Scheduler(s.Scheduler), Forward: v.Forward, Tunnel: v.Tunnel, Persistence: v.Persistence,
		Backends: v.Reals}
}
