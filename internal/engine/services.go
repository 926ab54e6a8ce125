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

// completeServices returns a copy of the virtual services in which each has its
// data plane and its local real servers are marked. Services that another host
// balances are not changed.
func (e *Engine) completeServices(all []model.VirtualService, facts plan.Facts) ([]model.VirtualService, error) {
	all = slices.Clone(all)
	var errs []error
	for i, v := range all {
		if !v.Balances() {
			continue // other hosts do
		}
		p, err := paths.ChoosePlane(facts, v)
		if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", v.Name, err))
			continue
		}
		all[i].Plane = p.Name()
		all[i].Reals = withLocal(v, facts)
	}
	return all, errors.Join(errs...)
}

// withLocal returns a copy of the service's real servers in which Local is set
// for those at an address of the host or at a virtual address of the service.
func withLocal(v model.VirtualService, facts plan.Facts) []model.RealServer {
	all := slices.Clone(v.Reals)
	for i, r := range all {
		all[i].Local = facts.Own[r.Address] || slices.Contains(v.Addresses, r.Address)
	}
	return all
}

// plannedService is the plan that a data plane made for a virtual service.
type plannedService struct {
	of model.VirtualService
	// ends are the endpoints among its real servers, as planned.
	ends []*plannedEndpoint
	part plan.Part
}

// prepared returns the plan for sandboxes that receive packets for the virtual
// address untranslated. It adds the address to their loopback link and keeps them
// from answering ARP for it on other links. For forwarding by NAT it is empty.
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
			all = append(all, plan.Address{Netns: end.of.Sandbox, Link: model.Loopback,
				Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return all
}

// quiet returns the settings with which a host or sandbox neither answers nor
// announces addresses of one link by ARP on another link (arp_ignore and
// arp_announce, Documentation/networking/ip-sysctl.rst). IPv6 needs no setting:
// it never answers for addresses of another link.
func quiet(netns string) plan.Plan {
	return plan.Plan{plan.Sysctl{Netns: netns, Name: "net.ipv4.conf.all.arp_ignore", Value: "1"},
		plan.Sysctl{Netns: netns, Name: "net.ipv4.conf.all.arp_announce", Value: "2"}}
}

// buildServices returns the plans of the data planes for the virtual services.
// Data planes are pure functions, so a plan of before is used again while the
// service and the endpoints behind it are unchanged.
func (e *Engine) buildServices(s model.State, attachments []plan.Attachment,
	before map[string]*plannedService) []plan.Part {
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
		balanced := func() plan.Plan { return nil }
		if v.Balances() {
			p, _ := paths.Plane(v.Plane) // complete has chosen it
			used[v.Plane] = p
			balanced = func() plan.Plan { return p.Service(v, find) }
		}
		ends := e.endsOf(v)
		made := before[v.Name]
		if made == nil || !made.of.Equal(v) || !slices.Equal(made.ends, ends) {
			made = &plannedService{v, ends, plan.NewPart(append(prepared(v, ends), balanced()...))}
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

// endsOf returns the planned endpoints among the service's real servers.
func (e *Engine) endsOf(v model.VirtualService) []*plannedEndpoint {
	var ends []*plannedEndpoint
	for _, r := range v.Reals {
		if r.Endpoint != "" {
			ends = append(ends, e.planned.endpoints[r.Endpoint])
		}
	}
	return ends
}
