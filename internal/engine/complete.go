package engine

import (
	"errors"
	"fmt"

	"fairlead/internal/ipam"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// complete fills in the defaults of the graph: values that drivers read from the
// host's links, leased addresses, the modes of publishes via auto and the data
// planes of services. The record keeps the state as the user wrote it, so the
// modes are chosen again each time. The choice is the same until the kernel, the
// endpoint or the publish changes.
func (e *Engine) complete(g *graph, inUse ipam.Leases, facts plan.Facts) (ipam.Leases, ipam.Last, error) {
	leases, last, err := e.lease(g, inUse, facts)
	if err != nil {
		return nil, nil, err
	}
	errs := []error{g.completeServices(facts)}
	for _, p := range g.publishes {
		if err := p.choose(facts); err != nil {
			errs = append(errs, fmt.Errorf("publish %s: %w", p, err))
		}
	}
	return leases, last, errors.Join(errs...)
}

// lease fills in what drivers read from the host's links, and an address for each
// endpoint that has none.
func (e *Engine) lease(g *graph, inUse ipam.Leases, facts plan.Facts) (ipam.Leases, ipam.Last, error) {
	for _, n := range g.networks {
		if n.driver != nil {
			*n.Network = n.driver.Complete(*n.Network, facts)
		}
	}
	return ipam.Assign(g.state, g.on, inUse, e.last)
}

// choose sets the mode of a publish via auto to the cheapest one that keeps the promises
// that the publish asks for. It returns an error if the publish names a mode that does not.
func (p *published) choose(facts plan.Facts) error {
	at := p.to.attachment()
	if p.Via != model.ViaAuto {
		return paths.Keeps(p.to.network.Driver, *p.Publish, at)
	}
	choice, err := paths.Choose(facts, p.to.network.driver, *p.Publish, at)
	if err == nil {
		p.Via = choice.Via
		p.mode, _ = paths.Mode(p.Via)
	}
	return err
}
