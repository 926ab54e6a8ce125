package runner

import (
	"context"
	"net/netip"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// The one network of a rig, and its sandboxes: the workload and its peer.
var (
	subnet   = netip.MustParsePrefix("172.30.0.0/24")
	workload = netip.MustParseAddr("172.30.0.2")
	neighbor = netip.MustParseAddr("172.30.0.3")
	// On an overlay each host assigns addresses from its own range, and the client
	// is in a sandbox too.
	serverRange = netip.MustParsePrefix("172.30.0.0/25")
	clientRange = netip.MustParsePrefix("172.30.0.128/25")
	visitor     = netip.MustParseAddr("172.30.0.130")
)

// The range of the wire's subnet for sandboxes on the wire itself, and the
// workload's address in it.
var (
	wirePool     = netip.MustParsePrefix("198.51.100.16/28")
	wireWorkload = netip.MustParseAddr("198.51.100.20")
)

// The names of the network and of the sandboxes.
const (
	lab         = "lab"
	web         = "web"
	peer        = "peer"
	containerOf = "visitor" // on the client host
)

// vni is the overlay's VNI, the same as in the post that the suite attach quotes.
const vni = 5001

// workload is the workload's address in its sandbox.
func (r *rig) workload() netip.Addr {
	switch r.path.Driver {
	case model.DriverMacvlan, model.DriverIPvlan:
		return wireWorkload
	case model.DriverDevice:
		return topology.ServerSecond4
	}
	return workload
}

// set makes the engines build the path: the server host's, and for an overlay also
// the client host's.
func (r *rig) set(ctx context.Context) error {
	state, err := r.state()
	if err != nil {
		return err
	}
	if _, err := r.world.Engine.Set(ctx, state); err != nil {
		return err
	}
	if r.path.Driver == model.DriverVXLAN {
		return r.setFar(ctx)
	}
	return nil
}

// setFar makes the client host's engine join the overlay with the client's
// sandbox, because an overlay connects sandboxes.
func (r *rig) setFar(ctx context.Context) error {
	box, err := r.world.Sandbox(containerOf)
	if err != nil {
		return err
	}
	_, err = r.world.ClientEngine().Set(ctx, model.State{Networks: []model.Network{r.network()},
		Endpoints: []model.Endpoint{{Name: containerOf, Network: lab, Sandbox: box, Addresses: []netip.Addr{visitor}}}})
	return err
}

// state returns the desired state of the server host: the path's network with the
// workload's sandbox, and with its neighbour's if that is a client or has its own
// place on the wires.
func (r *rig) state() (model.State, error) {
	network := r.network()
	if r.path.Driver == model.DriverHost {
		return r.hostState(network), nil
	}
	s := model.State{Networks: []model.Network{network}}
	residents := map[string]netip.Addr{web: r.workload()}
	if !r.path.OnWire() || r.path.Wires > 1 {
		residents[peer] = neighbor
	}
	for name, addr := range residents {
		box, err := r.world.Sandbox(name)
		if err != nil {
			return s, err
		}
		ep := model.Endpoint{Name: name, Network: network.Name, Sandbox: box, Addresses: []netip.Addr{addr}}
		if r.path.Driver == model.DriverDevice {
			ep.Addresses, ep.Prefixes = nil, []netip.Prefix{topology.Subnet(addr)}
		}
		s.Endpoints = append(s.Endpoints, ep)
	}
	if r.path.Via != "" {
		s.Publishes = r.publishes()
	}
	if r.path.Plane != "" {
		s.Services = services(r.path)
	}
	return s, nil
}

// network returns the path's network on the server host. A link on the wire gets
// its MTU from the wire.
func (r *rig) network() model.Network {
	n := model.Network{Name: lab, Driver: r.path.Driver, Filter: r.path.Filter, Subnets: []model.Subnet{{Prefix: subnet}}}
	switch r.path.Driver {
	case model.DriverHost:
		n.Subnets = nil
	case model.DriverBridge, model.DriverRouted:
		n.MTU = r.path.MTU
	case model.DriverMacvlan, model.DriverIPvlan:
		n.Parent = topology.Wire
		n.Subnets = []model.Subnet{{Prefix: topology.Subnet(topology.ServerAddr4).Masked(), Gateway: topology.ClientAddr4, Range: wirePool}}
	case model.DriverDevice:
		n.Parent, n.Subnets = topology.SecondWire, nil
	case model.DriverVXLAN:
		n.Overlay = r.overlay()
	}
	return n
}

// overlay is the same on both hosts: each finds itself among the peers, and its
// address in its range. Over two wires the sandboxes of a host are distributed
// over them, the client's on the first. The workload is the second sandbox of its
// host, so that one wire carries what it receives and the other what it sends.
func (r *rig) overlay() model.Overlay {
	server := model.Peer{Address: topology.ServerAddr4, Ranges: []netip.Prefix{serverRange}}
	client := model.Peer{Address: topology.ClientAddr4, Ranges: []netip.Prefix{clientRange},
		Endpoints: []model.PeerEndpoint{{Addresses: []netip.Addr{visitor}}}}
	sandboxes := []netip.Addr{workload}
	if r.path.Wires > 1 {
		server.Further, client.Further = []netip.Addr{topology.ServerSecond4}, []netip.Addr{topology.ClientSecond4}
		sandboxes = []netip.Addr{neighbor, workload}
	}
	for _, a := range sandboxes {
		server.Endpoints = append(server.Endpoints, model.PeerEndpoint{Addresses: []netip.Addr{a}})
	}
	return model.Overlay{VNI: vni, Peers: []model.Peer{server, client}}
}

// underlays returns the wires that an overlay over two wires must use.
func (r *rig) underlays() []string {
	if r.path.Wires < 2 {
		return nil
	}
	return []string{topology.Wire, topology.SecondWire}
}

// tunnel is the server host's link that the overlay's packets are sent through.
func (r *rig) tunnel() string {
	if r.path.ByOthers() {
		return handTunnel
	}
	return topology.TunnelLink(lab)
}

// hostState returns the state with the workload in the host's namespace,
// identified by its cgroup if it is published.
func (r *rig) hostState(network model.Network) model.State {
	s := model.State{Networks: []model.Network{network}, Endpoints: []model.Endpoint{{Name: web, Network: lab}}}
	if r.path.Via != "" {
		s.Endpoints[0].Cgroup = r.groups.Server.Name()
		s.Publishes = r.publishes()
	}
	return s
}

func (r *rig) publishes() []model.Publish {
	var all []model.Publish
	for port := uint16(LoadPort); port <= LastPort; port++ {
		own := port
		if port == LoadPort {
			own = r.listenPort()
		}
		for _, proto := range []model.Proto{model.TCP, model.UDP} {
			all = append(all, model.Publish{Endpoint: web, Via: r.path.Via, Proto: proto, HostPorts: model.Port(port), Ports: model.Port(own)})
		}
	}
	for i := range r.path.Others {
		port := uint16(10_000 + i)
		all = append(all, model.Publish{Endpoint: web, Via: r.path.Via, Proto: model.TCP, HostPorts: model.Port(port), Ports: model.Port(port)})
	}
	return all
}
