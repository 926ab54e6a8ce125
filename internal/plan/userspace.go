package plan

import (
	"net/netip"

	"fairlead/internal/model"
)

// Listener is a host address and port range on which the user-space proxy
// accepts TCP connections or UDP datagrams and leads them to Target; port
// Ports.First+i leads to port TargetPorts.First+i.
type Listener struct {
	Proto model.Proto `json:"proto"`
	// Host is the local address to bind: 0.0.0.0 for every IPv4 address, ::
	// for every IPv6 one (IPV6_V6ONLY is always set), or one address.
	Host        netip.Addr      `json:"host"`
	Ports       model.PortRange `json:"ports"`
	Target      netip.Addr      `json:"target"`
	TargetPorts model.PortRange `json:"targetPorts"`
	// ProxyProtocol is the version of the PROXY header sent ahead of a TCP
	// stream: 0 (none), 1 or 2.
	ProxyProtocol int `json:"proxyProtocol,omitempty"`
}

// Reservation holds a host address and port range, without accepting
// anything on it, so that no other program takes a port which the kernel
// already leads elsewhere.
type Reservation struct {
	Proto model.Proto `json:"proto"`
	// Host is as in Listener.
	Host  netip.Addr      `json:"host"`
	Ports model.PortRange `json:"ports"`
}
