package routed

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.Yes(""),
		promise.PeerDirect:     promise.Yes("routed by the host"),
		promise.LANDirect:      promise.Yes("the LAN needs a route to the subnet"),
		promise.Outbound:       promise.Yes("the LAN needs a route to the subnet"),
		promise.OutboundSource: promise.Yes(""),
	}
}
