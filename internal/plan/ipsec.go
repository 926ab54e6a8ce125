package plan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/model"
)

// IPsecPolicy is the selector of an IPsec policy of the host. The kernel encrypts or
// drops the packets that the policy covers, unless they bypass its IPsec policies.
type IPsecPolicy struct {
	// Local are addresses of this host or behind it, Remote those of the other end.
	Local, Remote netip.Prefix
	// Proto is an IP protocol number; 0 means all.
	Proto uint8
	// LocalPort and RemotePort are ports; 0 means all.
	LocalPort, RemotePort uint16
}

// String returns the selector as "192.0.2.1/32 to 10.0.0.0/8".
func (p IPsecPolicy) String() string { return fmt.Sprintf("%s to %s", p.Local, p.Remote) }

// The protocol numbers of published ports (RFC 790, RFC 768).
var ipProtos = map[model.Proto]uint8{model.TCP: 6, model.UDP: 17}

// CoversPort reports whether the policy covers packets of some client to one of the
// ports of a host address. An unspecified address stands for every address of its
// family.
func (p IPsecPolicy) CoversPort(proto model.Proto, host netip.Addr, ports model.PortRange) bool {
	if p.Local.Addr().Is4() != host.Is4() || !host.IsUnspecified() && !p.Local.Contains(host) {
		return false
	}
	return (p.Proto == 0 || p.Proto == ipProtos[proto]) &&
		(p.LocalPort == 0 || ports.First <= p.LocalPort && p.LocalPort <= ports.Last)
}
