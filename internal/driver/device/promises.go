package device

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.No("the host needs another device on the LAN"),
		promise.PeerDirect:     promise.No("a device belongs to one sandbox"),
		promise.LANDirect:      promise.Yes("the sandbox is on the LAN itself"),
		promise.Outbound:       promise.Yes(""),
		promise.OutboundSource: promise.Yes(""),
	}
}
