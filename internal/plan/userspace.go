package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/model"
)

// Listener is a host address and port range on which the user-space proxy accepts
// TCP connections or UDP datagrams. It forwards them to Target: port Ports.First+i
// to port TargetPorts.First+i.
type Listener struct {
	Proto model.Proto `json:"proto"`
	// Host is the local address to bind: 0.0.0.0 for all IPv4 addresses, :: for all
	// IPv6 addresses, the zero value for both on one socket, or a single address.
	Host        netip.Addr      `json:"host"`
	Ports       model.PortRange `json:"ports"`
	Target      netip.Addr      `json:"target"`
	TargetPorts model.PortRange `json:"targetPorts"`
	// ProxyProtocol is the version of the PROXY header sent ahead of a TCP
	// stream: 0 (none), 1 or 2.
	ProxyProtocol int `json:"proxyProtocol,omitempty"`
}

// Key implements Object.
func (l Listener) Key() string {
	return "listener " + string(l.Proto) + " " + hostPorts(l.Host, l.Ports)
}

func (Listener) group() Group { return GroupProxy }

// Overlaps reports whether the listeners share an address and port.
func (l Listener) Overlaps(o Listener) bool {
	return l.Proto == o.Proto && l.Ports.Overlaps(o.Ports) &&
		(l.Host == o.Host || covers(l.Host, o.Host) || covers(o.Host, l.Host))
}

// covers reports whether a is a wildcard that includes b.
func covers(a, b netip.Addr) bool {
	return !a.IsValid() || a.IsUnspecified() && (!b.IsValid() || a.Is4() == b.Is4())
}

// Add implements Object.
func (l Listener) Add() []string {
	header := ""
	if l.ProxyProtocol != 0 {
		header = fmt.Sprintf(" send-proxy-v%d", l.ProxyProtocol)
	}
	return []string{fmt.Sprintf("fairlead-proxy listen %s %s to %s%s", l.Proto,
		hostPorts(l.Host, l.Ports), hostPorts(l.Target, l.TargetPorts), header)}
}

// Del implements Object.
func (l Listener) Del() []string {
	return []string{fmt.Sprintf("fairlead-proxy close %s %s", l.Proto, hostPorts(l.Host, l.Ports))}
}

// Reservation binds a host address and port range without accepting connections or
// datagrams, so that no other program takes ports that the kernel already
// redirects.
type Reservation struct {
	Proto model.Proto `json:"proto"`
	// Host is as in Listener.
	Host  netip.Addr      `json:"host"`
	Ports model.PortRange `json:"ports"`
}

// Key implements Object.
func (r Reservation) Key() string {
	return "reservation " + string(r.Proto) + " " + hostPorts(r.Host, r.Ports)
}

func (Reservation) group() Group { return GroupProxy }

// Add implements Object.
func (r Reservation) Add() []string {
	return []string{fmt.Sprintf("fairlead-proxy reserve %s %s", r.Proto, hostPorts(r.Host, r.Ports))}
}

// Del implements Object.
func (r Reservation) Del() []string {
	return []string{fmt.Sprintf("fairlead-proxy release %s %s", r.Proto, hostPorts(r.Host, r.Ports))}
}

func hostPorts(a netip.Addr, p model.PortRange) string {
	switch {
	case !a.IsValid():
		return "*:" + p.String()
	case a.Is6():
		return fmt.Sprintf("[%s]:%s", a, p)
	}
	return fmt.Sprintf("%s:%s", a, p)
}
