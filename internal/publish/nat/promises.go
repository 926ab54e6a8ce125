package nat

import (
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
)

// Promises implements publish.Mode.
func (Mode) Promises(d model.Driver) promise.Set {
	peerSource, lanSource := promise.Yes(""), promise.Yes("")
	switch {
	case d.Traits().Bridge:
		peerSource = promise.No("neighbours on the bridge are masqueraded, because their answers would bypass the host")
	case d.Traits().SubLinks:
		lanSource = promise.No("clients are masqueraded, because their answers would bypass the host")
		peerSource = lanSource
	}
	return publish.OfSandboxes(d, promise.Set{
		promise.LAN:             promise.Yes(""),
		promise.HostAddress:     promise.Yes(""),
		promise.Loopback4:       promise.Yes("masqueraded; route_localnet on Fairlead's link only"),
		promise.Loopback6:       promise.Yes("via the user-space proxy: netfilter cannot translate ::1"),
		promise.Peer:            promise.Yes(""),
		promise.Itself:          promise.Yes("masqueraded"),
		promise.LoopbackClosed:  promise.Yes("the guard chain drops 127.0.0.0/8 from Fairlead's links"),
		promise.V6ToV4:          promise.Yes("via the user-space proxy"),
		promise.LANSource:       lanSource,
		promise.HostSource:      promise.Yes(""),
		promise.PeerSource:      peerSource,
		promise.InputFirewall:   promise.No("forwarded packets pass FORWARD, never INPUT"),
		promise.ForwardFirewall: promise.Yes("except for IPv6 to an IPv4 endpoint, which the proxy serves"),
		promise.IPsec:           promise.Yes(""),
		promise.Survives:        promise.Yes(""),
	})
}
