package engine

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// target is a desired state, worked out.
type target struct {
	full   model.State
	leases ipam.Leases
	plan   plan.Plan
}

// target checks the state, leases what addresses it lacks and plans it.
func (e *Engine) target(want model.State, held ipam.Leases) (target, error) {
	facts, err := e.facts(want)
	if err != nil {
		return target{}, err
	}
	if err := errors.Join(want.Validate(), e.supported(want, facts)); err != nil {
		return target{}, err
	}
	full, leases, err := e.complete(want, held, facts)
	if err != nil {
		return target{}, err
	}
	p, err := build(full, facts)
	return target{full, leases, p}, err
}

// facts adds to what is known of the host the links that networks ask about.
func (e *Engine) facts(s model.State) (plan.Facts, error) {
	var asked []string
	for _, n := range s.Networks {
		asked = append(asked, n.Asks()...)
	}
	if len(asked) == 0 {
		return e.cfg.Facts, nil
	}
	facts := e.cfg.Facts
	var err error
	if facts.Links, err = e.cfg.Kernel.Links(asked); err != nil {
		return facts, fmt.Errorf("look at the host's links: %w", err)
	}
	return facts, nil
}

// supported checks every network and publish against its driver or way and
// this kernel.
func (e *Engine) supported(s model.State, facts plan.Facts) error {
	var errs []error
	for _, n := range s.Networks {
		d, ok := paths.Driver(n.Driver)
		if !ok {
			errs = append(errs, fmt.Errorf("network %s: there is no driver %q: `fairlead paths` lists them", n.Name, n.Driver))
		} else if missing := paths.Missing(facts, d.Needs()); missing != "" {
			errs = append(errs, fmt.Errorf("network %s: driver %s cannot work here: %s", n.Name, n.Driver, missing))
		} else if err := d.Validate(n, facts); err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", n.Name, err))
		}
	}
	for _, p := range s.Publishes {
		if p.Via == model.ViaAuto {
			continue // chosen when the addresses are known
		}
		w, ok := paths.Way(p.Via)
		if !ok {
			errs = append(errs, fmt.Errorf("publish %s: there is no way %q: `fairlead paths` lists them", p, p.Via))
		} else if missing := paths.Missing(facts, w.Needs()); missing != "" {
			errs = append(errs, fmt.Errorf("publish %s: cannot work here: %s", p, missing))
		} else if err := w.Validate(p); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// build joins what every driver and way plans; supported has found them all.
func build(s model.State, facts plan.Facts) (plan.Plan, error) {
	var parts []plan.Plan
	var all []plan.Attachment
	attachments := map[string]plan.Attachment{}
	for _, n := range s.Networks {
		d, _ := paths.Driver(n.Driver)
		parts = append(parts, d.Network(n, facts))
		for _, ep := range s.Endpoints {
			if ep.Network == n.Name {
				parts = append(parts, d.Endpoint(n, ep))
				at := d.Attachment(n, ep)
				attachments[ep.Name] = at
				all = append(all, at)
			}
		}
	}
	for _, w := range paths.Ways() {
		if slices.ContainsFunc(s.Publishes, func(p model.Publish) bool { return p.Via == w.Name() }) {
			parts = append(parts, w.Shared(all))
		}
	}
	for _, p := range s.Publishes {
		w, _ := paths.Way(p.Via)
		if err := w.Reaches(attachments[p.Endpoint]); err != nil {
			return nil, fmt.Errorf("publish %s: %w", p, err)
		}
		parts = append(parts, w.Publish(p, attachments[p.Endpoint]))
	}
	return plan.Merge(parts...)
}
