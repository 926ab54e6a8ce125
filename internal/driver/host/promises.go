package host

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.No("the workload shares the host's ports and addresses"),
		promise.HostDirect:     promise.Yes(""),
		promise.PeerDirect:     promise.Yes(""),
		promise.LANDirect:      promise.Yes(""),
		promise.Outbound:       promise.Yes(""),
		promise.OutboundSource: promise.Yes("the host's address is its own"),
	}
}
