package engine

import (
	"slices"

	"fairlead/internal/balance"
	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
)

// graph is a state whose objects refer to each other: publish → endpoint → network → driver.
// compile looks up each name of the state, and the later stages follow the pointers. The
// objects are copies, which the stages complete in place.
type graph struct {
	state     model.State
	networks  []*network
	endpoints []*endpoint
	// on are the networks of the endpoints.
	on        []*model.Network
	publishes []*published
	services  []*service
}

type network struct {
	*model.Network
	// driver is nil if there is no driver of that name.
	driver    driver.Driver
	endpoints []*endpoint
	part      plan.Part
}

type endpoint struct {
	*model.Endpoint
	// network is empty if the state has no network of that name.
	network *network
	at      *plan.Attachment
	planned *plannedEndpoint
}

type published struct {
	*model.Publish
	// mode is nil until one is chosen.
	mode publish.Mode
	// to is nil if the state has no endpoint of that name.
	to *endpoint
}

type service struct {
	*model.VirtualService
	// plane is nil until it is chosen.
	plane balance.Plane
	// reals are the endpoints of the real servers; nil for those that are no endpoints.
	reals   []*endpoint
	planned *plannedService
}

// compile returns the graph of a state, which does not change.
func compile(s model.State) *graph {
	g := &graph{state: model.State{Networks: slices.Clone(s.Networks), Endpoints: slices.Clone(s.Endpoints),
		Publishes: slices.Clone(s.Publishes), Services: slices.Clone(s.Services)}}
	networks, endpoints := map[string]*network{}, make(map[string]*endpoint, len(s.Endpoints))
	for i := range s.Networks {
		n := &network{Network: &g.state.Networks[i]}
		n.driver, _ = paths.Driver(n.Driver)
		g.networks, networks[n.Name] = append(g.networks, n), n
	}
	for i := range s.Endpoints {
		ep := &endpoint{Endpoint: &g.state.Endpoints[i]}
		if ep.network = networks[ep.Network]; ep.network == nil {
			ep.network = &network{Network: &model.Network{}}
		}
		ep.network.endpoints = append(ep.network.endpoints, ep)
		g.endpoints, endpoints[ep.Name] = append(g.endpoints, ep), ep
		g.on = append(g.on, ep.network.Network)
	}
	for i := range s.Publishes {
		p := &published{Publish: &g.state.Publishes[i]}
		p.mode, _ = paths.Mode(p.Via)
		p.to = endpoints[p.Endpoint]
		g.publishes = append(g.publishes, p)
	}
	for i := range s.Services {
		v := &service{VirtualService: &g.state.Services[i], reals: make([]*endpoint, len(s.Services[i].Reals))}
		for i, r := range v.Reals {
			v.reals[i] = endpoints[r.Endpoint]
		}
		g.services = append(g.services, v)
	}
	return g
}

// attachment returns how the network attaches the endpoint; nil if the network has no driver.
// The endpoint must have its addresses.
func (ep *endpoint) attachment() *plan.Attachment {
	if ep.at == nil && ep.network.driver != nil {
		at := ep.network.driver.Attachment(*ep.network.Network, *ep.Endpoint)
		ep.at = &at
	}
	return ep.at
}

// sandboxes returns the attachments of the real servers.
func (v *service) sandboxes() balance.Sandboxes {
	in := make(balance.Sandboxes, len(v.reals))
	for i, ep := range v.reals {
		if ep != nil {
			in[i] = ep.attachment()
		}
	}
	return in
}
