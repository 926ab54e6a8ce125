// Package balance holds what all data planes of the balancer share: the
// interface they fill, and how a virtual service is packed for the planes of
// our own. A plane turns a virtual service into a plan; it never touches the
// kernel.
package balance

import (
	"cmp"
	"fmt"
	"slices"

	"fairlead/internal/balance/maglev"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Plane is a data plane of the balancer. All methods are pure.
type Plane interface {
	// Name is the plane's name in the model.
	Name() model.Plane
	// Needs lists the kernel features without which it cannot hold the service.
	Needs(model.VirtualService) []plan.Feature
	// Validate says what in the service this plane cannot do on this host, with
	// the reason and what can: nothing is degraded in silence.
	Validate(model.VirtualService, plan.Facts) error
	// Shared plans what all services of the plane share, given the attachments of
	// all endpoints of the host.
	Shared([]plan.Attachment) plan.Plan
	// Service plans one service. Its real servers have addresses; those that are
	// down get nothing.
	Service(model.VirtualService, Sandboxes) plan.Plan
}

// Sandboxes finds the attachment of an endpoint by its name.
type Sandboxes func(endpoint string) (plan.Attachment, bool)

// Scheduler returns the scheduler of a service: one that it leaves open is
// Maglev hashing.
func Scheduler(v model.VirtualService) model.Scheduler {
	return cmp.Or(v.Scheduler, model.MaglevHashing)
}

// Forward returns how the packets of a service are forwarded.
func Forward(v model.VirtualService) model.Forward { return cmp.Or(v.Forward, model.ForwardNAT) }

// Pack packs a service for a plane of our own, with a Maglev table of so many
// buckets where it is scheduled by that; 0 is as many as make removals disturb
// little (maglev.Size).
func Pack(v model.VirtualService, find Sandboxes, buckets int) plan.Balanced {
	backends := Backends(v, find)
	b := plan.Balanced{Service: v.Name, Proto: v.Proto, Frontends: plan.PackFrontends(v.Frontends()),
		Scheduler: Scheduler(v), Forward: Forward(v), Tunnel: v.Tunnel, Persistence: v.Persistence, Backends: plan.PackBackends(backends)}
	if b.Scheduler == model.MaglevHashing {
		if buckets == 0 {
			buckets = maglev.Size(len(v.Reals))
		}
		b.Ring = plan.PackRing(maglev.Table(named(backends), buckets))
	}
	return b
}

// Backends returns the real servers of a service that are not down, in their
// canonical order.
func Backends(v model.VirtualService, find Sandboxes) []plan.Backend {
	var all []plan.Backend
	for _, r := range v.Reals {
		if r.State != model.RealDown {
			all = append(all, backend(v, r, find))
		}
	}
	slices.SortFunc(all, func(a, b plan.Backend) int { return a.At.Compare(b.At) })
	return all
}

func backend(v model.VirtualService, r model.RealServer, find Sandboxes) plan.Backend {
	b := plan.Backend{At: r.At(0), Weight: uint32(r.Weight), Draining: r.State == model.RealDraining}
	at, ours := find(r.Endpoint)
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

// named returns the backends that may get new flows as maglev knows them; their
// indexes are the same.
func named(all []plan.Backend) []maglev.Backend {
	names := make([]maglev.Backend, len(all))
	for i, b := range all {
		names[i] = maglev.Backend{Name: b.At.String(), Weight: b.Weight}
		if b.Draining {
			names[i].Weight = 0
		}
	}
	return names
}

// Families says which real servers are of another family than an address of
// the service: a plane that does not translate between them refuses those.
func Families(v model.VirtualService) error {
	for _, a := range v.Addresses {
		for _, r := range v.Reals {
			if r.Address.IsValid() && r.Address.Is4() != a.Is4() {
				return fmt.Errorf("real server %s is of another address family than %s: make a service for each family", r, a)
			}
		}
	}
	return nil
}
