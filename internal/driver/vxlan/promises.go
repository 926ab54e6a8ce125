package vxlan

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.Yes(""),
		promise.PeerDirect:     promise.Yes("switched by the bridge, tunnelled between hosts"),
		promise.LANDirect:      promise.No("only published ports are open to the LAN"),
		promise.Outbound:       promise.Yes("masqueraded"),
		promise.OutboundSource: promise.No("the LAN sees the host's address"),
	}
}
