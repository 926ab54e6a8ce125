package rig

import (
	"cmp"
	"net/netip"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// The names of the network and of the sandboxes.
const (
	Network  = "lab"
	Workload = "web"
	Neighbor = "peer"
	Visitor  = "visitor" // on the client host
	// OtherNetwork is another network of the server host, and Other a sandbox in it.
	OtherNetwork = "lab2"
	Other        = "other"
)

// VNI is the overlay's VNI, the same as in the post that the suite attach quotes.
const VNI = 5001

// Link is a link of the server host, or in the workload's sandbox.
type Link struct {
	Name      string
	InSandbox bool
}

func (l Link) bytes(w *topology.World) (uint64, error) {
	if l.InSandbox {
		return w.SandboxBytes(Workload, l.Name)
	}
	return w.LinkBytes(l.Name)
}

func (l Link) String() string {
	if l.InSandbox {
		return l.Name + " in the sandbox"
	}
	return l.Name
}

// inside is the workload's link in its sandbox.
var inside = Link{Name: "eth0", InSandbox: true}

// site is where a driver puts the workload. The zero value is for a sandbox that
// the client host reaches through published ports only.
type site struct {
	// inHost: the workload is a process in the host's network namespace.
	inHost bool
	// routed: the client host has a route to the subnet of the sandboxes. hidden:
	// it has none, although the host itself reaches them.
	routed, hidden bool
	// address is the workload's address, neighbor its neighbour's.
	address, neighbor netip.Addr
	// outside are the links that the traffic must pass in addition to the
	// sandbox's own, whoever makes the path.
	outside []Link
	// made are the links that it must pass if Fairlead's engine makes the path;
	// nil means the same as for others.
	made []Link
	// visitor is the sandbox of clients across the wire; empty if they are on the
	// client host.
	visitor string
	// wires adds the wires that the path needs; nil if it needs one.
	wires func(w *topology.World) error
	// network completes the network that the engine creates.
	network func(p suite.Path, n *model.Network)
	// exposed is the wire whose network the workload's sandbox is on itself: in a part,
	// that is the network between the machines. Empty if the host forwards to it.
	exposed string
	// prefixes: endpoints get an address with a prefix, not one of the network.
	prefixes bool
}

// links returns the links that a client's traffic must pass if other programs make
// the path.
func (s site) links(c result.Client) []Link {
	switch {
	case !s.inHost:
		return append(s.outside[:len(s.outside):len(s.outside)], inside)
	case c == result.Remote:
		return []Link{{Name: topology.Wire}}
	}
	return []Link{{Name: "lo"}}
}

// siteOf returns the site of a path's driver, which follows from the driver's traits.
func siteOf(p suite.Path) site {
	at := AddressesOf(p.Family)
	s := siteWith(p.Driver.Traits(), at)
	s.address, s.neighbor = cmp.Or(s.address, at.Workload), cmp.Or(s.neighbor, at.Neighbor)
	return s
}

func siteWith(t model.Traits, at *Addresses) site {
	veth := []Link{{Name: topology.EndpointLink(Workload)}}
	switch {
	case t.HostNetns:
		return site{inHost: true, network: func(_ suite.Path, n *model.Network) { n.Subnets = nil }}
	case t.NoLink:
		return site{}
	case t.SubLinks:
		return site{address: at.WireWorkload, neighbor: at.WireNeighbor, outside: []Link{{Name: topology.Wire}},
			network: networkOnWire,
			exposed: topology.Wire}
	case t.MovesDevice:
		return site{address: at.ServerSecond, prefixes: true, wires: (*topology.World).AddDevice,
			exposed: topology.SecondWire,
			network: func(_ suite.Path, n *model.Network) { n.Parent, n.Subnets = topology.SecondWire, nil }}
	case t.Overlay:
		return site{visitor: Visitor, made: []Link{{Name: topology.TunnelLink(Network)}, inside},
			network: func(p suite.Path, n *model.Network) { n.Overlay = overlay(p) }}
	}
	return site{hidden: t.Bridge, routed: !t.Bridge, made: veth, network: withMTU}
}

func withMTU(p suite.Path, n *model.Network) { n.MTU = p.MTU }

// networkOnWire puts the sandboxes on the wire, whose MTU they get.
func networkOnWire(p suite.Path, n *model.Network) {
	n.Parent, n.MTU = topology.Wire, p.MTU
	at := AddressesOf(p.Family)
	n.Subnets = []model.Subnet{{Prefix: topology.Subnet(at.Server).Masked(), Gateway: at.Client, Range: at.WireRange}}
}

// overlay is the same on both hosts: each finds itself among the peers, and its
// address in its range. Over two wires the sandboxes of a host are distributed
// over them, the client's on the first. The workload is the second sandbox of its
// host, so that one wire carries what it receives and the other what it sends.
func overlay(p suite.Path) model.Overlay {
	at := AddressesOf(p.Family)
	server := model.Peer{Address: at.Server, Ranges: []netip.Prefix{at.ServerRange}}
	client := model.Peer{Address: at.Client, Ranges: []netip.Prefix{at.ClientRange},
		Endpoints: []model.PeerEndpoint{{Addresses: []netip.Addr{at.Visitor}}}}
	sandboxes := []netip.Addr{at.Workload}
	if p.Wires > 1 {
		server.Further, client.Further = []netip.Addr{at.ServerSecond}, []netip.Addr{at.ClientSecond}
		sandboxes = []netip.Addr{at.Neighbor, at.Workload}
	}
	for _, a := range sandboxes {
		server.Endpoints = append(server.Endpoints, model.PeerEndpoint{Addresses: []netip.Addr{a}})
	}
	return model.Overlay{VNI: VNI, Peers: []model.Peer{server, client}}
}
