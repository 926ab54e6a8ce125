package bridge

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     promise.Yes(""),
		promise.PeerDirect:     promise.Yes("switched by the bridge"),
		promise.LANDirect:      promise.No("only published ports are open to the LAN"),
		promise.Outbound:       promise.Yes("masqueraded; with outbound ebpf, past the host's FORWARD rules"),
		promise.OutboundSource: promise.No("the LAN sees the host's address"),
	}
}
