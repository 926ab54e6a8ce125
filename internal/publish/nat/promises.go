package nat

import (
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
)

// Promises implements publish.Way.
func (Mode) Promises(d model.Driver) promise.Set {
	peerSource := promise.No("neighbours on the bridge are masqueraded, or their answers would pass the host by")
	lanSource := promise.Yes("")
	switch d {
	case model.DriverRouted:
		peerSource = promise.Yes("")
	case model.DriverMacvlan, model.DriverIPvlan:
		lanSource = promise.No("clients are masqueraded, or their answers would pass the host by")
		peerSource = lanSource
	}
	return publish.OfSandboxes(d, promise.Set{
		promise.LAN:             promise.Yes(""),
		promise.HostAddress:     promise.Yes(""),
		promise.Loopback4:       promise.Yes("masqueraded; route_localnet on our own link only"),
		promise.Loopback6:       promise.Yes("by the user-space proxy: netfilter cannot lead ::1 elsewhere"),
		promise.Peer:            promise.Yes(""),
		promise.Itself:          promise.Yes("masqueraded"),
		promise.LoopbackClosed:  promise.Yes("the guard chain drops 127.0.0.0/8 from our links"),
		promise.V6ToV4:          promise.Yes("by the user-space proxy"),
		promise.LANSource:       lanSource,
		promise.HostSource:      promise.Yes(""),
		promise.PeerSource:      peerSource,
		promise.InputFirewall:   promise.No("forwarded packets pass FORWARD, never INPUT"),
		promise.ForwardFirewall: promise.Yes("but for IPv6 to an IPv4 endpoint, which the proxy answers"),
		promise.Survives:        promise.Yes(""),
	})
}
