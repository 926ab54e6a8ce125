package macvlan

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.Yes("in mode bridge, via a macvlan of the host"),
		promise.PeerDirect:     promise.Yes("in mode bridge, switched by the kernel"),
		promise.LANDirect:      promise.Yes("it is a host of the LAN"),
		promise.Outbound:       promise.Yes(""),
		promise.OutboundSource: promise.Yes(""),
	}
}
