package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/balance"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// completeServices returns the virtual services with their planes chosen.
func (e *Engine) completeServices(all []model.VirtualService, facts plan.Facts) ([]model.VirtualService, error) {
	all = slices.Clone(all)
	var errs []error
	for i, v := range all {
		p, err := paths.ChoosePlane(facts, v)
		if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", v.Name, err))
			continue
		}
		all[i].Plane = p.Name()
	}
	return all, errors.Join(errs...)
}

// plannedService is what a plane has planned for a virtual service.
type plannedService struct {
	of model.VirtualService
	// ends are the endpoints among its real servers, as they were planned.
	ends []*plannedEndpoint
	part plan.Part
}

// buildServices returns what the planes plan for the virtual services. Planes
// are pure, so what they have planned holds for as long as a service and the
// endpoints behind it are the same.
func (e *Engine) buildServices(s model.State, attachments []plan.Attachment, before map[string]*plannedService) []plan.Part {
	e.planned.services = make(map[string]*plannedService, len(s.Services))
	find := func(endpoint string) (plan.Attachment, bool) {
		known, ok := e.planned.endpoints[endpoint]
		if !ok {
			return plan.Attachment{}, false
		}
		return known.at, true
	}
	used := map[model.Plane]balance.Plane{}
	var parts []plan.Part
	for _, v := range s.Services {
		p, _ := paths.Plane(v.Plane) // complete has chosen it
		used[v.Plane] = p
		ends := e.endsOf(v)
		made := before[v.Name]
		if made == nil || !made.of.Equal(v) || !slices.Equal(made.ends, ends) {
			made = &plannedService{v, ends, plan.NewPart(p.Service(v, find))}
		}
		e.planned.services[v.Name] = made
		parts = append(parts, made.part)
	}
	var shared []plan.Part
	for _, name := range slices.Sorted(maps.Keys(used)) {
		shared = append(shared, plan.NewPart(used[name].Shared(attachments)))
	}
	return append(shared, parts...)
}

func (e *Engine) endsOf(v model.VirtualService) []*plannedEndpoint {
	var ends []*plannedEndpoint
	for _, r := range v.Reals {
		if r.Endpoint != "" {
			ends = append(ends, e.planned.endpoints[r.Endpoint])
		}
	}
	return ends
}
