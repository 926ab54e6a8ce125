package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Scheduler says how a real server is chosen for a new flow. The names are
// those of IPVS (ipvsadm(8)).
type Scheduler string

// The schedulers. The empty one is the plane's own choice: Maglev hashing
// where it has that.
const (
	RoundRobin              Scheduler = "rr"
	WeightedRoundRobin      Scheduler = "wrr"
	LeastConnection         Scheduler = "lc"
	WeightedLeastConnection Scheduler = "wlc"
	SourceHashing           Scheduler = "sh"
	MaglevHashing           Scheduler = "mh"
	ShortestExpectedDelay   Scheduler = "sed"
	NeverQueue              Scheduler = "nq"
)

// Forward says how a packet is sent on to its real server.
type Forward string

// The ways to forward; the empty one is ForwardNAT.
const (
	// ForwardNAT rewrites the destination; answers come back through the host.
	ForwardNAT Forward = "nat"
	// ForwardDirect changes only the hardware address: the real server has the
	// virtual address itself, and answers the client on its own.
	ForwardDirect Forward = "direct"
	// ForwardTunnel wraps the packet (as Tunnel says) for a real server that has
	// the virtual address itself.
	ForwardTunnel Forward = "tunnel"
	// ForwardLocal sends nothing on: this host is a real server of a service that
	// another host has, and takes what that sends it by direct or tunnel.
	ForwardLocal Forward = "local"
)

// Loopback is the link of a host's own addresses, of which it tells no
// neighbour.
const Loopback = "lo"

// Plane names a data plane of the balancer.
type Plane string

// The data planes; PlaneAuto, which is also the empty one, leaves the choice to
// the engine.
const (
	PlaneIPVS Plane = "ipvs"
	PlaneNFT  Plane = "nft"
	PlaneEBPF Plane = "ebpf"
	PlaneAuto Plane = "auto"
)

// SourceNAT says whose address a real server sees, where ForwardNAT is used.
type SourceNAT string

// The choices. The empty one is SourceNATAuto.
const (
	// SourceNATAuto keeps the client's address where the answer of the real server
	// comes back through the host by itself: from sandboxes of ours. All others
	// see the host.
	SourceNATAuto SourceNAT = "auto"
	// SourceNATRouted says that real servers elsewhere have the host as their
	// router: they see the client.
	SourceNATRouted SourceNAT = "routed"
	// SourceNATMasqueraded shows the host to every real server.
	SourceNATMasqueraded SourceNAT = "masqueraded"
)

// RealState says what a real server may get.
type RealState string

// The states.
const (
	// RealUp gets new flows by its weight.
	RealUp RealState = ""
	// RealDraining keeps the flows that it has and gets no new ones.
	RealDraining RealState = "draining"
	// RealDown gets nothing, and its flows are ended. It still counts for the
	// size of a table, so that the others keep their places in it.
	RealDown RealState = "down"
)

// RealServer is one server behind a virtual service.
type RealServer struct {
	// Address is the server's. It is empty where Select finds it.
	Address netip.Addr `json:"address,omitzero"`
	// Port is the server's; 0 is the port that the client has dialled.
	Port uint16 `json:"port,omitempty"`
	// Weight is its share of new flows; 0 gives it none.
	Weight int `json:"weight"`
	// State is what its administrator wants of it: empty, draining or down.
	State RealState `json:"state,omitempty"`
	// Select names attachments instead of an address: each that it fits is a
	// real server, for as long as it is there.
	Select Select `json:"select,omitzero"`
	// Endpoint is the attachment that Select has found; the engine is told of it.
	Endpoint string `json:"endpoint,omitempty"`
	// Local says that the address is this host's own; the engine finds out.
	Local bool `json:"-"`
}

// Select chooses attachments. All that is given must fit.
type Select struct {
	// Name is the attachment's name or its sandbox's, as a pattern (path.Match),
	// e.g. web-*.
	Name string `json:"name,omitempty"`
	// Label is a container's label: KEY, or KEY=VALUE.
	Label string `json:"label,omitempty"`
	// Network is the network that it is attached to; of several attachments of
	// one container, the first by name otherwise.
	Network string `json:"network,omitempty"`
}

// IsZero reports whether nothing is selected.
func (s Select) IsZero() bool { return s == Select{} }

// At returns the server's address and port, for a client that has dialled a
// port.
func (r RealServer) At(port uint16) netip.AddrPort {
	if r.Port != 0 {
		port = r.Port
	}
	return netip.AddrPortFrom(r.Address, port)
}

// String writes the server as "192.0.2.7:80", or as what selects it.
func (r RealServer) String() string {
	port := ""
	if r.Port != 0 {
		port = fmt.Sprintf(":%d", r.Port)
	}
	switch {
	case r.Address.Is6():
		return "[" + r.Address.String() + "]" + port
	case r.Address.IsValid():
		return r.Address.String() + port
	}
	var parts []string
	for _, p := range []struct{ key, value string }{{"name", r.Select.Name}, {"label", r.Select.Label}, {"network", r.Select.Network}} {
		if p.value != "" {
			parts = append(parts, p.key+"="+p.value)
		}
	}
	return strings.Join(parts, ",") + port
}

// Is reports whether both are of one address, or selected alike, and of one
// port.
func (r RealServer) Is(o RealServer) bool {
	return r.Address == o.Address && r.Port == o.Port && r.Select == o.Select
}

// VirtualService is an address, or several, and ports balanced over real
// servers.
type VirtualService struct {
	Name string `json:"name"`
	// Addresses are the virtual addresses, of either family.
	Addresses []netip.Addr `json:"addresses"`
	// Interface is the host's link that the addresses are put on; empty leaves
	// that to others, but for what Link says.
	Interface string      `json:"interface,omitempty"`
	Ports     []PortRange `json:"ports"`
	Proto     Proto       `json:"proto"`
	Scheduler Scheduler   `json:"scheduler,omitempty"`
	Forward   Forward     `json:"forward,omitempty"`
	// Tunnel is how packets are wrapped for ForwardTunnel.
	Tunnel    Tunnel    `json:"tunnel,omitzero"`
	Plane     Plane     `json:"plane,omitempty"`
	SourceNAT SourceNAT `json:"sourceNAT,omitempty"`
	// Persistence keeps a client's address with the real server that it had, for
	// that long after its last new flow; 0 for none. It has whole seconds.
	Persistence time.Duration `json:"persistence,omitempty"`
	Reals       []RealServer  `json:"reals,omitempty"`
	// Sorry is where clients are sent while fewer than Quorum of the real servers
	// are up; none if its address is not valid.
	Sorry netip.AddrPort `json:"sorry,omitzero"`
	// Quorum is how many real servers must be up; 0 is 1.
	Quorum int `json:"quorum,omitempty"`
	// Panic is the share of real servers, in percent, that must be up for the
	// checks to be believed: below it all are used. 0 never does.
	Panic int `json:"panic,omitempty"`
	// Drain is how long a real server that leaves may keep its flows; 0 is until
	// they end.
	Drain time.Duration `json:"drain,omitempty"`
	Check Check         `json:"check,omitzero"`
	// Origin says who made the service; only they change it or take it away.
	Origin Origin `json:"origin,omitempty"`
}

// Frontend is one address and port on which a virtual service answers.
type Frontend struct {
	Proto Proto
	At    netip.AddrPort
}

// String writes the frontend as "192.0.2.10:80/tcp".
func (f Frontend) String() string { return f.At.String() + "/" + string(f.Proto) }

// Frontends returns every address and port on which the service answers.
func (v VirtualService) Frontends() []Frontend {
	var all []Frontend
	for _, a := range v.Addresses {
		for _, r := range v.Ports {
			for port := int(r.First); port <= int(r.Last); port++ {
				all = append(all, Frontend{v.Proto, netip.AddrPortFrom(a, uint16(port))})
			}
		}
	}
	return all
}

// String writes the service as "web (192.0.2.10:80/tcp)".
func (v VirtualService) String() string {
	var at []string
	for _, a := range v.Addresses {
		for _, r := range v.Ports {
			text := a.String()
			if a.Is6() {
				text = "[" + text + "]"
			}
			at = append(at, text+":"+r.String()+"/"+string(v.Proto))
		}
	}
	return v.Name + " (" + strings.Join(at, ", ") + ")"
}

// Link returns the host's link that the addresses are put on, empty for none.
// Where the host itself gets packets as they are, it is Loopback unless another is
// named: over UDP, nobody can answer from an address of IPv6 that only a route
// makes local.
func (v VirtualService) Link() string {
	unnamed := v.Interface == "" && (v.Forward == ForwardDirect || v.Forward == ForwardTunnel)
	if v.Forward == ForwardLocal || unnamed && slices.ContainsFunc(v.Reals, RealServer.isLocal) {
		return Loopback
	}
	return v.Interface
}

func (r RealServer) isLocal() bool { return r.Local }

// Equal reports whether nothing differs.
func (v VirtualService) Equal(o VirtualService) bool {
	return v.Name == o.Name && slices.Equal(v.Addresses, o.Addresses) && v.Interface == o.Interface && slices.Equal(v.Ports, o.Ports) &&
		v.Proto == o.Proto && v.Scheduler == o.Scheduler && v.Forward == o.Forward && v.Tunnel == o.Tunnel && v.Plane == o.Plane && v.SourceNAT == o.SourceNAT &&
		v.Persistence == o.Persistence && slices.Equal(v.Reals, o.Reals) && v.Sorry == o.Sorry && v.Quorum == o.Quorum &&
		v.Panic == o.Panic && v.Drain == o.Drain && v.Check.Equal(o.Check) && v.Origin == o.Origin
}

// Clone returns a copy that shares nothing with v.
func (v VirtualService) Clone() VirtualService {
	v.Addresses, v.Ports, v.Reals = slices.Clone(v.Addresses), slices.Clone(v.Ports), slices.Clone(v.Reals)
	v.Check.Command = slices.Clone(v.Check.Command)
	return v
}
