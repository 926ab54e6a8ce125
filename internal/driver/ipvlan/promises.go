package ipvlan

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.Yes("via an ipvlan of the host"),
		promise.PeerDirect:     promise.Yes("switched by the kernel"),
		promise.LANDirect:      promise.Yes("in mode l2 it is a host of the LAN; in l3 and l3s the LAN needs a route to the subnet"),
		promise.Outbound:       promise.Yes(""),
		promise.OutboundSource: promise.Yes(""),
	}
}
