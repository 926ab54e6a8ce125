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

// completeServices sets the data plane of each virtual service, and marks its local
// real servers: those at an address of the host or at a virtual address of the service.
// Services that another host balances are not changed.
func (g *graph) completeServices(facts plan.Facts) error {
	var errs []error
	for _, v := range g.services {
		if !v.Balances() {
			continue // other hosts do
		}
		p, err := paths.ChoosePlane(facts, *v.VirtualService, v.sandboxes())
		if err != nil {
			errs = append(errs, fmt.Errorf("service %s: %w", v.Name, err))
			continue
		}
		v.plane, v.Plane, v.Reals = p, p.Name(), slices.Clone(v.Reals)
		for i, r := range v.Reals {
			v.Reals[i].Local = facts.Own[r.Address] || slices.Contains(v.Addresses, r.Address)
		}
	}
	return errors.Join(errs...)
}

// plannedService is the plan that a data plane made for a virtual service.
type plannedService struct {
	of   model.VirtualService
	in   balance.Sandboxes
	part plan.Part
}

// prepared returns the plan for sandboxes that receive packets for the virtual
// address untranslated. It adds the address to their loopback link and keeps them
// from answering ARP for it on other links. For forwarding by NAT it is empty.
func (v *service) prepared() plan.Plan {
	if balance.Forward(*v.VirtualService) == model.ForwardNAT {
		return nil
	}
	var all plan.Plan
	for _, end := range v.reals {
		for _, a := range v.Addresses {
			if end == nil || end.Sandbox == "" {
				continue
			}
			if a.Is4() {
				all = append(all, quiet(end.Sandbox)...)
			}
			all = append(all, plan.Address{Netns: end.Sandbox, Link: model.Loopback,
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
func (e *Engine) buildServices(g *graph, attachments []plan.Attachment,
	before map[string]*plannedService) []plan.Part {
	e.planned.services = make(map[string]*plannedService, len(g.services))
	used := map[model.Plane]balance.Plane{}
	var parts []plan.Part
	for _, v := range g.services {
		if v.Forward == model.ForwardLocal {
			continue // virtual has planned it
		}
		if v.plane != nil {
			used[v.Plane] = v.plane
		}
		v.planned = before[v.Name]
		// While the plan of an endpoint is unchanged, so is the pointer to its attachment.
		in := v.sandboxes()
		if v.planned == nil || !v.planned.of.Equal(*v.VirtualService) || !slices.Equal(v.planned.in, in) {
			all := v.prepared()
			if v.plane != nil {
				all = append(all, v.plane.Service(*v.VirtualService, in)...)
			}
			v.planned = &plannedService{*v.VirtualService, in, plan.NewPart(all)}
		}
		e.planned.services[v.Name] = v.planned
		parts = append(parts, v.planned.part)
	}
	var shared []plan.Part
	for _, name := range slices.Sorted(maps.Keys(used)) {
		shared = append(shared, plan.NewPart(used[name].Shared(attachments)))
	}
	return append(shared, parts...)
}
