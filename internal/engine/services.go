package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
		if v.Forward == model.ForwardLocal {
			continue // another host balances it
		}
		p, err := paths.ChoosePlane(facts, v)
		if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", v.Name, err))
			continue
		}
		all[i].Plane = p.Name()
		all[i].Reals = whereabouts(v, facts)
	}
	return all, errors.Join(errs...)
}

// whereabouts returns the real servers of a service, with those known that are
// the host itself. The virtual address is one where packets stay as they are.
func whereabouts(v model.VirtualService, facts plan.Facts) []model.RealServer {
	all := slices.Clone(v.Reals)
	for i, r := range all {
		all[i].Local = facts.Own[r.Address] || slices.Contains(v.Addresses, r.Address)
	}
	return all
}

// plannedService is what a plane has planned for a virtual service.
type plannedService struct {
	of model.VirtualService
	// ends are the endpoints among its real servers, as they were planned.
	ends []*plannedEndpoint
	part plan.Part
}

// prepared has the sandboxes among the real servers of a service take packets
// for the virtual address itself, where they are sent such: they have it on
// their loopback link, and are quiet about it on others.
func prepared(v model.VirtualService, ends []*plannedEndpoint) plan.Plan {
	if balance.Forward(v) == model.ForwardNAT {
		return nil
	}
	var all plan.Plan
	for _, end := range ends {
		for _, a := range v.Addresses {
			if end == nil || end.of.Sandbox == "" {
				continue
			}
			if a.Is4() {
				all = append(all, quiet(end.of.Sandbox)...)
			}
			all = append(all, plan.Address{Netns: end.of.Sandbox, Link: model.Loopback, Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return all
}

// quiet has a host, or a sandbox, neither answer on a link for addresses of
// another nor speak of them there (arp_ignore and arp_announce,
// Documentation/networking/ip-sysctl.rst). IPv6 answers for no address of
// another link.
func quiet(netns string) plan.Plan {
	return plan.Plan{plan.Sysctl{Netns: netns, Name: "net.ipv4.conf.all.arp_ignore", Value: "1"},
		plan.Sysctl{Netns: netns, Name: "net.ipv4.conf.all.arp_announce", Value: "2"}}
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
		if v.Forward == model.ForwardLocal {
			continue // virtual has planned it
		}
		p, _ := paths.Plane(v.Plane) // complete has chosen it
		used[v.Plane] = p
		ends := e.endsOf(v)
		made := before[v.Name]
		if made == nil || !made.of.Equal(v) || !slices.Equal(made.ends, ends) {
			made = &plannedService{v, ends, plan.NewPart(append(prepared(v, ends), p.Service(v, find)...))}
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
