// Package balance has the interface that every data plane of the balancer
// implements, and packs a virtual service for Fairlead's data planes (ebpf, nft). A
// data plane turns a virtual service into a plan. It never changes the kernel.
package balance

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Plane is a data plane of the balancer. All methods are pure functions of their
// arguments.
type Plane interface {
	// Name returns the data plane's name in the model.
	Name() model.Plane
	// Needs lists the kernel features without which the service cannot work.
	Needs(model.VirtualService) []plan.Feature
	// Validate returns an error if the data plane does not support a setting of the
	// service on this host. The error has the reason and what to use instead. No
	// setting is ignored silently.
	Validate(model.VirtualService, Sandboxes, plan.Facts) error
	// Shared plans what all services of the data plane share, from the attachments
	// of all endpoints of the host.
	Shared([]plan.Attachment) plan.Plan
	// Service plans one service. All its real servers have addresses. Those that are
	// down get no packets.
	Service(model.VirtualService, Sandboxes) plan.Plan
}

// Sandboxes are the attachments of the real servers of a service, in the order of the
// real servers. An element is nil if the real server is not an endpoint of the host. All
// are missing if no endpoint is known yet.
type Sandboxes []*plan.Attachment

// Of returns the attachment of the real server at this position. It returns false if the
// real server is not an endpoint of the host.
func (s Sandboxes) Of(real int) (at plan.Attachment, ours bool) {
	if real >= len(s) || s[real] == nil {
		return at, false
	}
	return *s[real], true
}

// Scheduler returns the scheduler of a service.
func Scheduler(v model.VirtualService) model.Scheduler {
	return cmp.Or(v.Scheduler, model.DefaultScheduler)
}

// Forward returns how the packets of a service are forwarded. The default is nat.
func Forward(v model.VirtualService) model.Forward { return cmp.Or(v.Forward, model.ForwardNAT) }

// Pack packs a service for a data plane with rings of these sizes.
func Pack(v model.VirtualService, in Sandboxes, size Sizes) plan.Balanced {
	backends := Backends(v, in)
	return plan.Balanced{Service: v.Name, Proto: v.Proto, Frontends: plan.FrontendAddrs(v.Frontends()),
		Scheduler: Scheduler(v), Forward: Forward(v), Tunnel: v.Tunnel, Persistence: v.Persistence,
		Backends: backends, Ring: Ring(Scheduler(v), backends, size)}
}

// Backends returns the real servers of a service that are not down, in their
// canonical order.
func Backends(v model.VirtualService, in Sandboxes) []plan.Backend {
	var all []plan.Backend
	for i, r := range v.Reals {
		if r.State != model.RealDown {
			at, ours := in.Of(i)
			all = append(all, backend(v, r, at, ours))
		}
	}
	slices.SortFunc(all, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	return all
}

func backend(v model.VirtualService, r model.RealServer, at plan.Attachment, ours bool) plan.Backend {
	b := plan.Backend{At: r.At(0), Weight: uint32(r.Weight), Draining: r.State == model.RealDraining}
	if ours {
		b.Link = at.Port
		b.Gateway, _ = at.Gateway(r.Address.Is4())
	}
	b.Tunnel = !ours && Forward(v) == model.ForwardTunnel
	switch v.SourceNAT {
	case model.SourceNATMasqueraded:
		b.Masquerade = true
	case model.SourceNATRouted:
	default:
		b.Masquerade = !ours
	}
	return b
}

// Families returns an error if a real server and an address of the service have
// different address families. It is for data planes that do not translate between
// the families.
func Families(v model.VirtualService) error {
	for _, a := range v.Addresses {
		for _, r := range v.Reals {
			if r.Address.IsValid() && r.Address.Is4() != a.Is4() {
				return fmt.Errorf("real server %s is of another address family than %s: make one service per family", r,
					a)
			}
		}
	}
	return nil
}
