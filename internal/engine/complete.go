package engine

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/ipam"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// complete returns the state with its defaults filled in: values that drivers read
// from the host's links, leased addresses, the modes of publishes via auto and the
// data planes of services. The record keeps the state as the user wrote it, so the
// modes are chosen again each time. The choice is the same until the kernel, the
// endpoint or the publish changes.
func (e *Engine) complete(want model.State, inUse ipam.Leases, facts plan.Facts) (model.State, ipam.Leases, error) {
	full, leases, err := e.lease(want, inUse, facts)
	if err != nil {
		return full, nil, err
	}
	ends := attach(full)
	full.Publishes = slices.Clone(full.Publishes)
	var errs []error
	facts.Shaped = having(ends, func(a plan.Attachment) bool { return a.Shaped })
	facts.Away = having(ends, func(a plan.Attachment) bool { return a.Away })
	facts.Internal = having(ends, func(a plan.Attachment) bool { return a.Internal })
	if full.Services, err = e.completeServices(full.Services, facts); err != nil {
		errs = append(errs, err)
	}
	for i, p := range full.Publishes {
		to, ok := ends[p.Endpoint]
		if !ok {
			continue // the record is from a version that this one cannot read fully
		}
		if full.Publishes[i].Via, err = chooseMode(p, to, facts); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", p, err))
		}
	}
	return full, leases, errors.Join(errs...)
}

// lease returns the state with what drivers read from the host's links, and with an
// address for each endpoint that has none.
func (e *Engine) lease(want model.State, inUse ipam.Leases, facts plan.Facts) (model.State, ipam.Leases, error) {
	want.Networks = slices.Clone(want.Networks)
	for i, n := range want.Networks {
		if d, ok := paths.Driver(n.Driver); ok {
			want.Networks[i] = d.Complete(n, facts)
		}
	}
	return ipam.Assign(want, inUse, e.last)
}

// chooseMode returns the publish's mode if it keeps the promises that the publish
// asks for. For auto, it returns the cheapest mode that does.
func chooseMode(p model.Publish, to end, facts plan.Facts) (model.Via, error) {
	if p.Via != model.ViaAuto {
		return p.Via, paths.Keeps(to.driver.Name(), p, &to.at)
	}
	choice, err := paths.Choose(facts, to.driver, p, &to.at)
	if err != nil {
		return p.Via, err
	}
	return choice.Via, nil
}

// end is the target of a publish: the endpoint's driver and attachment.
type end struct {
	driver driver.Driver
	at     plan.Attachment
}

// attach returns the attachments of all endpoints that have publishes or are real
// servers, by the endpoint's name.
func attach(s model.State) map[string]end {
	wanted := map[string]bool{}
	for _, p := range s.Publishes {
		wanted[p.Endpoint] = true
	}
	for _, v := range s.Services {
		for _, r := range v.Reals {
			wanted[r.Endpoint] = true
		}
	}
	ends := map[string]end{}
	for _, ep := range s.Endpoints {
		if !wanted[ep.Name] {
			continue
		}
		n, _ := s.Network(ep.Network)
		if d, ok := paths.Driver(n.Driver); ok {
			ends[ep.Name] = end{d, d.Attachment(n, ep)}
		}
	}
	return ends
}

// having returns the names of the endpoints whose attachment satisfies is.
func having(ends map[string]end, is func(plan.Attachment) bool) map[string]bool {
	found := map[string]bool{}
	for name, e := range ends {
		if is(e.at) {
			found[name] = true
		}
	}
	return found
}
