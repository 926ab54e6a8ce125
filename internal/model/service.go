package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Forward is how packets are forwarded to a real server.
type Forward string

// The forwarding methods. The empty one is ForwardNAT.
const (
	// ForwardNAT rewrites the destination address. Answers return through the host.
	ForwardNAT Forward = "nat"
	// ForwardDirect changes only the hardware address. The real server has the
	// virtual address too, and answers the client directly.
	ForwardDirect Forward = "direct"
	// ForwardTunnel encapsulates the packet (see Tunnel). The real server has the
	// virtual address too.
	ForwardTunnel Forward = "tunnel"
	// ForwardLocal forwards nothing. This host is a real server of a service that
	// another host balances with direct or tunnel, and accepts its packets.
	ForwardLocal Forward = "local"
)

// Loopback is the link for addresses that the host does not announce to its
// neighbours.
const Loopback = "lo"

// SourceNAT is the source address that a real server sees with ForwardNAT.
type SourceNAT string

// The source NAT policies. The empty one is SourceNATAuto.
const (
	// SourceNATAuto keeps the client's address for real servers whose answers
	// return through the host in any case, which are sandboxes of this host. All
	// other real servers see the host.
	SourceNATAuto SourceNAT = "auto"
	// SourceNATRouted keeps the client's address. Real servers on other hosts must
	// use this host as their router.
	SourceNATRouted SourceNAT = "routed"
	// SourceNATMasqueraded makes every real server see the host.
	SourceNATMasqueraded SourceNAT = "masqueraded"
)

// RealState is whether a real server gets new flows and keeps its old ones.
type RealState string

// The states of real servers.
const (
	// RealUp gets new flows according to its weight.
	RealUp RealState = ""
	// RealDraining keeps its flows and gets no new ones.
	RealDraining RealState = "draining"
	// RealDown gets no packets, and its flows are ended. It keeps its place in the
	// Maglev table, so that the places of the others do not change.
	RealDown RealState = "down"
)

// RealServer is one server behind a virtual service.
type RealServer struct {
	// Address is the server's address. It is empty if Select is used.
	Address netip.Addr `json:"address,omitzero"`
	// Port is the server's port. 0 keeps the port that the client connected to.
	Port uint16 `json:"port,omitempty"`
	// Weight is its share of new flows; 0 gives it none.
	Weight int `json:"weight"`
	// State is the administrator's setting: empty, draining or down.
	State RealState `json:"state,omitempty"`
	// Select selects attachments instead of an address. Each matching attachment is
	// a real server while it exists.
	Select Select `json:"select,omitzero"`
	// Endpoint is the attachment that Select found. The daemon sets it.
	Endpoint string `json:"endpoint,omitempty"`
	// Node is the name of the cluster's node that has the server's sandbox. It is empty
	// for sandboxes of this host, and for servers outside the cluster.
	Node string `json:"node,omitempty"`
	// Local is true if the address is this host's. The engine sets it.
	Local bool `json:"-"`
}

// Select selects attachments. All given conditions must match.
type Select struct {
	// Name is a pattern (path.Match) for the name of the attachment or of its
	// sandbox, e.g. web-*.
	Name string `json:"name,omitempty"`
	// Label is a container's label: KEY, or KEY=VALUE.
	Label string `json:"label,omitempty"`
	// Network is the network of the attachment. If it is empty and a container has
	// several attachments, the first by name is used.
	Network string `json:"network,omitempty"`
}

// IsZero reports whether nothing is selected.
func (s Select) IsZero() bool { return s == Select{} }

// At returns the server's address and port for a client that connected to the given
// port.
func (r RealServer) At(port uint16) netip.AddrPort {
	if r.Port != 0 {
		port = r.Port
	}
	return netip.AddrPortFrom(r.Address, port)
}

// String writes the server as "192.0.2.7:80", or as its selector.
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
	for _, p := range []struct{ key, value string }{{"name", r.Select.Name}, {"label", r.Select.Label},
		{"network", r.Select.Network}} {
		if p.value != "" {
			parts = append(parts, p.key+"="+p.value)
		}
	}
	return strings.Join(parts, ",") + port
}

// Is reports whether both have the same address or selector, and the same port.
func (r RealServer) Is(o RealServer) bool {
	return r.Address == o.Address && r.Port == o.Port && r.Select == o.Select
}

// VirtualService is a set of addresses and ports that is balanced over real
// servers.
type VirtualService struct {
	Name string `json:"name"`
	// Addresses are the virtual addresses, of either family.
	Addresses []netip.Addr `json:"addresses"`
	// Interface is the host's link that gets the addresses. If it is empty,
	// Fairlead does not set the addresses, except as Link says.
	Interface string      `json:"interface,omitempty"`
	Ports     []PortRange `json:"ports"`
	Proto     Proto       `json:"proto"`
	Scheduler Scheduler   `json:"scheduler,omitempty"`
	Forward   Forward     `json:"forward,omitempty"`
	// Tunnel is the encapsulation for ForwardTunnel.
	Tunnel    Tunnel    `json:"tunnel,omitzero"`
	Plane     Plane     `json:"plane,omitempty"`
	SourceNAT SourceNAT `json:"sourceNAT,omitempty"`
	// Persistence is how long a client keeps its real server after its last new
	// flow; 0 disables persistence. It is in whole seconds.
	Persistence time.Duration `json:"persistence,omitempty"`
	Reals       []RealServer  `json:"reals,omitempty"`
	// Sorry is the server that clients are sent to while fewer than Quorum real
	// servers are up. If its address is not valid, there is none.
	Sorry netip.AddrPort `json:"sorry,omitzero"`
	// Quorum is the number of real servers that must be up. 0 means 1.
	Quorum int `json:"quorum,omitempty"`
	// Panic is a percentage of real servers. If fewer are up, the checks' results
	// are ignored and all real servers are used. 0 disables this.
	Panic int `json:"panic,omitempty"`
	// Drain is how long a removed real server may keep its flows. 0 means until
	// they end.
	Drain time.Duration `json:"drain,omitempty"`
	Check Check         `json:"check,omitzero"`
	// NoIngress means that this host accepts no packets for the service. It only prepares
	// its sandboxes for the packets that other hosts forward to them (ForwardDirect).
	NoIngress bool `json:"noIngress,omitempty"`
	// Origin names who created the service. Only the same origin may change or remove
	// it.
	Origin Origin `json:"origin,omitempty"`
}

// Frontend is an address, protocol and port of a virtual service.
type Frontend struct {
	Proto Proto
	At    netip.AddrPort
}

// String writes the frontend as "192.0.2.10:80/tcp".
func (f Frontend) String() string { return f.At.String() + "/" + string(f.Proto) }

// Frontends returns all frontends of the service.
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

// Link returns the host's link that gets the addresses; empty if there is none. It
// is Loopback if the host itself is a real server that gets packets with the
// virtual address and Interface is empty. A local route is not enough there: over
// UDP, a server cannot answer from an IPv6 address that only a route makes local.
func (v VirtualService) Link() string {
	unnamed := v.Interface == "" && (v.Forward == ForwardDirect || v.Forward == ForwardTunnel)
	if v.Forward == ForwardLocal || unnamed && slices.ContainsFunc(v.Reals, RealServer.isLocal) {
		return Loopback
	}
	return v.Interface
}

func (r RealServer) isLocal() bool { return r.Local }

// Balances reports whether this host chooses real servers for the service's clients.
// With ForwardLocal or NoIngress, other hosts do.
func (v VirtualService) Balances() bool { return v.Forward != ForwardLocal && !v.NoIngress }

// Equal reports whether both services are equal.
func (v VirtualService) Equal(o VirtualService) bool {
	return v.Name == o.Name && slices.Equal(v.Addresses, o.Addresses) && v.Interface == o.Interface &&
		slices.Equal(v.Ports, o.Ports) &&
		v.Proto == o.Proto && v.Scheduler == o.Scheduler && v.Forward == o.Forward && v.Tunnel == o.Tunnel &&
		v.Plane == o.Plane && v.SourceNAT == o.SourceNAT &&
		v.Persistence == o.Persistence && slices.Equal(v.Reals, o.Reals) && v.Sorry == o.Sorry &&
		v.Quorum == o.Quorum &&
		v.Panic == o.Panic && v.Drain == o.Drain && v.Check.Equal(o.Check) &&
		v.NoIngress == o.NoIngress && v.Origin == o.Origin
}

// Clone returns a deep copy.
func (v VirtualService) Clone() VirtualService {
	v.Addresses, v.Ports, v.Reals = slices.Clone(v.Addresses), slices.Clone(v.Ports), slices.Clone(v.Reals)
	v.Check.Command = slices.Clone(v.Check.Command)
	return v
}
