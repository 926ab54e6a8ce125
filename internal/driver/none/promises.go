package none

import "fairlead/internal/promise"

// Promises implements driver.Driver.
func (Driver) Promises() promise.Set {
	unreachable := promise.No("the sandbox has no link to the outside")
	return promise.Set{
		promise.Isolated:       promise.Yes(""),
		promise.HostDirect:     unreachable,
		promise.PeerDirect:     unreachable,
		promise.LANDirect:      unreachable,
		promise.Outbound:       unreachable,
		promise.OutboundSource: unreachable,
	}
}
