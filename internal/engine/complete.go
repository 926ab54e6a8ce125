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

// complete returns the state with what it leaves to us filled in: what drivers
// find out of the host's links, addresses, and the ways of publishes via auto and planes of services. A way is chosen anew each time, so the
// record keeps the wish; the choice is the same until the kernel, the
// endpoint or the wish changes.
func (e *Engine) complete(want model.State, inUse ipam.Leases, facts plan.Facts) (model.State, ipam.Leases, error) {
	want.Networks = slices.Clone(want.Networks)
	for i, n := range want.Networks {
		if d, ok := paths.Driver(n.Driver); ok {
			want.Networks[i] = d.Complete(n, facts)
		}
	}
	full, leases, err := ipam.Assign(want, inUse)
	if err != nil {
		return full, nil, err
	}
	ends := attach(full)
	full.Publishes = slices.Clone(full.Publishes)
	var errs []error
	facts.Shaped = having(ends, func(a plan.Attachment) bool { return a.Shaped })
	facts.Internal = having(ends, func(a plan.Attachment) bool { return a.Internal })
	if full.Services, err = e.completeServices(full.Services, facts); err != nil {
		errs = append(errs, err)
	}
	for i, p := range full.Publishes {
		to, ok := ends[p.Endpoint]
		if !ok {
			continue // in a record that this version can make nothing of
		}
		if full.Publishes[i].Via, err = chooseMode(p, to, facts); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", p, err))
		}
	}
	return full, leases, errors.Join(errs...)
}

// chooseMode returns the way that the publish names, if it promises what is asked
// for, and for auto the cheapest that does.
func chooseMode(p model.Publish, to end, facts plan.Facts) (model.Via, error) {
	if p.Via != model.ViaAuto {
		return p.Via, paths.Keeps(to.driver.Name(), p)
	}
	choice, err := paths.Choose(facts, to.driver, p, &to.at)
	if err != nil {
		return p.Via, err
	}
	return choice.Via, nil
}

// end is where a publish leads: the driver that attaches the endpoint, and
// how it does.
type end struct {
	driver driver.Driver
	at     plan.Attachment
}

// attach tells of each endpoint that has publishes or is a real server, by its
// name, how it is attached.
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

// having returns the endpoints whose attachment is so.
func having(ends map[string]end, is func(plan.Attachment) bool) map[string]bool {
	found := map[string]bool{}
	for name, e := range ends {
		if is(e.at) {
			found[name] = true
		}
	}
	return found
}
