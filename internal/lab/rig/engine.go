package rig

import (
	"context"
	"fmt"
	"net/netip"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// Engine makes Fairlead's paths with the engine of the server host, as they would
// be deployed. Makers of peers that forward to a sandbox of the engine embed it.
type Engine struct{ Base }

// NewEngine returns the maker of a path of Fairlead.
func NewEngine(p suite.Path) *Engine { return &Engine{Base{p}} }

// Needs implements Maker.
func (e *Engine) Needs() Needs { return Needs{Cgroup: carrierOf(e.Path).cgroup()} }

// Start implements Maker.
func (e *Engine) Start(ctx context.Context, r *Rig) error {
	state, err := e.state(r)
	if err != nil {
		return err
	}
	_, err = r.World.Engine.Set(ctx, state)
	return err
}

// Join implements Joining: the client host's engine joins an overlay with the client's
// sandbox, because an overlay connects sandboxes.
func (e *Engine) Join(ctx context.Context, r *Rig) error {
	visitor := siteOf(e.Path).visitor
	if visitor == "" {
		return nil
	}
	box, err := r.World.Sandbox(visitor)
	if err != nil {
		return err
	}
	ep := model.Endpoint{Name: visitor, Network: Network, Sandbox: box, Addresses: []netip.Addr{e.Addresses().Visitor}}
	n, err := e.network(clientNode)
	if err != nil {
		return err
	}
	state := model.State{Networks: []model.Network{n}, Endpoints: []model.Endpoint{ep}}
	_, err = r.World.ClientEngine().Set(ctx, state)
	return err
}

// state returns the desired state of the server host: the path's network with the
// workload's sandbox, and with its neighbour's if that is a client or has its own
// place on the wires.
func (e *Engine) state(r *Rig) (model.State, error) {
	at := siteOf(e.Path)
	n, err := e.network(serverNode)
	if err != nil {
		return model.State{}, err
	}
	if r.part != topology.Whole && at.exposed == topology.Wire {
		// Without the host's own macvlan, which mode bridge has.
		n.Mode = model.ModePrivate
	}
	s := model.State{Networks: []model.Network{n}}
	if at.inHost {
		s.Endpoints = []model.Endpoint{e.hostEndpoint(r)}
		s.Publishes = e.publishes()
		return s, nil
	}
	attached := map[string]netip.Addr{Workload: at.address}
	if !e.Path.OnWire() || e.Path.Wires > 1 || r.Wants(result.Peer) {
		attached[Neighbor] = at.neighbor
	}
	for name, addr := range attached {
		box, err := r.World.Sandbox(name)
		if err != nil {
			return s, err
		}
		ep := model.Endpoint{Name: name, Network: Network, Sandbox: box, Addresses: []netip.Addr{addr}}
		if at.exposed == topology.Wire {
			ep.MAC = r.World.SandboxMAC().String()
		}
		if at.prefixes {
			ep.Addresses, ep.Prefixes = nil, []netip.Prefix{topology.Subnet(addr)}
		}
		s.Endpoints = append(s.Endpoints, ep)
	}
	if r.Wants(result.OtherNetwork) {
		if err := e.addOther(r, &s); err != nil {
			return s, err
		}
	}
	s.Publishes = e.publishes()
	s.Services = services(e.Path)
	return s, nil
}

// addOther adds another network with the path's driver, and a sandbox in it.
func (e *Engine) addOther(r *Rig, s *model.State) error {
	box, err := r.World.Sandbox(Other)
	if err != nil {
		return err
	}
	at := e.Addresses()
	s.Networks = append(s.Networks, model.Network{Name: OtherNetwork, Driver: e.Path.Driver, Filter: e.Path.Filter,
		MTU: e.Path.MTU, Subnets: []model.Subnet{{Prefix: at.OtherSubnet}}})
	s.Endpoints = append(s.Endpoints, model.Endpoint{Name: Other, Network: OtherNetwork, Sandbox: box,
		Addresses: []netip.Addr{at.Other}})
	return nil
}

// network returns the path's network on a host. All hosts have the same, but for the ranges of a cluster's.
func (e *Engine) network(node string) (model.Network, error) {
	n := model.Network{Name: Network, Driver: e.Path.Driver, Filter: e.Path.Filter, Outbound: e.Path.Outbound,
		Subnets: []model.Subnet{{Prefix: e.Addresses().Subnet}}}
	if complete := siteOf(e.Path).network; complete != nil {
		complete(e.Path, &n)
	}
	if e.Path.Clustered {
		return clustered(n, e.Addresses(), node)
	}
	return n, nil
}

// hostEndpoint is the workload in the host's namespace, identified by its cgroup
// if that is how its ports are published.
func (e *Engine) hostEndpoint(r *Rig) model.Endpoint {
	ep := model.Endpoint{Name: Workload, Network: Network}
	if e.Path.Via != "" {
		ep.Cgroup = r.Groups.Server.Name()
	}
	return ep
}

// publishes returns the publishes of all ports, and of others that get no
// requests.
func (e *Engine) publishes() []model.Publish {
	if e.Path.Via == "" {
		return nil
	}
	var all []model.Publish
	var host netip.Addr // all addresses of both families
	if e.Addresses().IPv6() {
		host = e.Addresses().Unspecified
	}
	add := func(proto model.Proto, port, container uint16) {
		all = append(all, model.Publish{Endpoint: Workload, Via: e.Path.Via, Proto: proto, HostAddr: host,
			HostPorts: model.Port(port), Ports: model.Port(container)})
	}
	for port := uint16(LoadPort); port <= LastPort; port++ {
		container := port
		if port == LoadPort {
			container = carrierOf(e.Path).listenPort()
		}
		add(model.TCP, port, container)
		add(model.UDP, port, container)
	}
	for i := range e.Path.Others {
		add(model.TCP, uint16(firstOther+i), uint16(firstOther+i))
	}
	return all
}

// firstOther is the first port of the other publishes or services.
const firstOther = 10_000

// services returns the path's services, if it has any: one per protocol, with the
// workload as real server, and others that get no requests.
func services(p suite.Path) []model.VirtualService {
	if p.Plane == "" {
		return nil
	}
	at := AddressesOf(p.Family)
	var all []model.VirtualService
	for _, proto := range []model.Proto{model.TCP, model.UDP} {
		all = append(all, model.VirtualService{
			Name: string(proto), Addresses: []netip.Addr{at.Virtual},
			Ports: []model.PortRange{{First: LoadPort, Last: LastPort}}, Proto: proto, Plane: p.Plane,
			Reals: []model.RealServer{{Address: at.Workload, Weight: 1, Endpoint: Workload}},
		})
	}
	for i := range p.Others {
		v := model.VirtualService{Name: fmt.Sprintf("other-%d", i), Addresses: []netip.Addr{at.Virtual},
			Ports: []model.PortRange{model.Port(uint16(firstOther + i))}, Proto: model.TCP, Plane: p.Plane}
		for n := range byte(10) {
			v.Reals = append(v.Reals, model.RealServer{Address: at.other(i, n+1), Port: 80, Weight: 1})
		}
		all = append(all, v)
	}
	return all
}

// Links implements Maker.
func (e *Engine) Links(c result.Client) []Link {
	t := e.Path.Driver.Traits()
	var links []Link
	if (t.Bridge || t.RoutesPeers) && e.Path.Outbound != model.OutboundEBPF { // the programs bypass the link's counters
		links = []Link{{Name: topology.EndpointLink(Workload)}}
	}
	switch {
	case c == result.Outbound:
		return append(links, e.OutboundLinks()...)
	case c == result.Peer && e.Path.OnWire(): // on the same host, so neither over the wire nor over the tunnel
		return append(links, inside)
	}
	if e.Path.Clustered { // the VXLAN link does not count what the eBPF program sends
		return []Link{{Name: topology.Wire}, inside}
	}
	made := siteOf(e.Path).made
	if made == nil || carrierOf(e.Path).bypasses(c) {
		return e.Base.Links(c)
	}
	return made
}

// Count implements Maker.
func (e *Engine) Count(ctx context.Context, r *Rig, n *Counters) error {
	if err := n.countWires(e.Path, r.World); err != nil {
		return err
	}
	if r.World.Proxy != nil {
		s, err := r.World.Proxy.Stats(ctx)
		if err != nil {
			return err
		}
		n.hasProxy, n.proxied = true, s.BytesIn+s.BytesOut
	}
	return e.Base.Count(ctx, r, n)
}

// Proof implements Maker.
func (e *Engine) Proof(w Window, links *result.Proof) *result.Proof {
	p := e.Base.Proof(w, links)
	switch {
	case p != links:
	case e.Path.Wires > 1:
		return WireProof(w)
	case siteOf(e.Path).inHost:
		return WithoutConntrack(p, w)
	case w.After.hasProxy:
		p.Absent, p.AbsentGot = "bytes through the proxy", w.proxied()
		p.OK = w.proxied() == 0
	}
	return p
}

// Features returns the kernel features that a path may use, including those of what is chosen while it is built.
func Features(p suite.Path) []plan.Feature {
	all := needs(p)
	for _, v := range services(p) {
		for _, plane := range paths.Planes() {
			if v.Plane == plane.Name() || v.Plane == model.PlaneAuto {
				all = append(all, plane.Needs(v)...)
			}
		}
	}
	if p.Outbound == model.OutboundEBPF || p.Outbound == model.OutboundAuto {
		all = append(all, plan.FeatureEBPF)
	}
	return all
}

// needs returns the features without which a path cannot run, except those of its services.
func needs(p suite.Path) (all []plan.Feature) {
	if d, ok := paths.Driver(p.Driver); ok {
		all = append(all, d.Needs()...)
	}
	if p.Family.Is6() {
		all = append(all, plan.FeatureIPv6)
	}
	if p.Filter == model.FilterOn {
		all = append(all, plan.FeatureBridgeFilter)
	}
	if m, ok := paths.Mode(p.Via); ok {
		all = append(all, m.Needs()...)
	}
	return all
}

// Unavailable returns why the path cannot run on this host, e.g. a missing kernel
// feature. It returns "" if the path can run.
func Unavailable(p suite.Path, facts plan.Facts) string {
	if why := p.WithoutFamily(); why != "" {
		return why
	}
	if _, ok := paths.Driver(p.Driver); !ok && !p.ByOthers() {
		return "this version has no driver " + string(p.Driver)
	}
	if _, ok := paths.Mode(p.Via); !ok && p.Via != "" {
		return "this version has no publish mode " + string(p.Via)
	}
	if missing := paths.Missing(facts, needs(p)); missing != "" {
		return missing
	}
	for _, v := range services(p) {
		if _, err := paths.ChoosePlane(facts, v, nil); err != nil {
			return err.Error()
		}
	}
	return ""
}
