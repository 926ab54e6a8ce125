package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// resume has the checks begin where the planes are. What they know is noted a
// while after they have told, and a process that is killed notes nothing; but
// what the engine does is written down before it is done. A real server that was out
// stays out until it has passed its checks, and no other is touched until it has
// failed them.
func (d *Daemon) resume(w model.Desired) error {
	record, err := d.cfg.Store.Load()
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if slices.ContainsFunc(w.Services, selects) {
		// Who is selected by name is found with the address that it has, or the
		// service would have nobody until the first step has told of leases, and all
		// its connections would be ended.
		full, err := d.engine.State()
		d.warn("find the addresses of sandboxes", err)
		d.full.Endpoints = full.Endpoints
	}
	out := d.takenOut(w)
	wanted := map[string]bool{}
	for _, v := range w.Services {
		wanted[v.Name] = true
	}
	inUse := make([]model.VirtualService, 0, len(record.Desired.Services))
	for _, v := range record.Desired.Services {
		if !wanted[v.Name] {
			continue
		}
		v.Reals = slices.DeleteFunc(slices.Clone(v.Reals), func(r model.RealServer) bool { return out[realKey{v.Name, r.At(0)}] })
		inUse = append(inUse, v)
	}
	noted := slices.DeleteFunc(d.services.noted, func(one health.Remembered) bool { return !wanted[one.Service] })
	d.health.Import(noted, inUse)
	d.services.noted = nil
	return nil
}

// takenOut returns the real servers that are out, or may be, for another reason
// than their checks: their planes tell nothing of those.
func (d *Daemon) takenOut(w model.Desired) map[realKey]bool {
	out := map[realKey]bool{}
	for key := range d.services.drains {
		out[key] = true
	}
	for _, v := range w.Services {
		for _, r := range v.Reals {
			if r.State == model.RealDown {
				out[realKey{v.Name, netip.AddrPortFrom(r.Address, r.Port)}] = true
			}
		}
	}
	return out
}
