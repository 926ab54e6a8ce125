package socket

import (
	"fairlead/internal/model"
	"fairlead/internal/promise"
)

// Promises implements publish.Mode.
func (Mode) Promises(d model.Driver) promise.Set {
	if !d.Traits().HostNetns {
		return nil
	}
	return promise.Set{
		promise.LAN:             promise.Yes("the workload's own socket"),
		promise.HostAddress:     promise.Yes(""),
		promise.Loopback4:       promise.Yes(""),
		promise.Loopback6:       promise.Yes(""),
		promise.Peer:            promise.Yes("other workloads are the host's processes too"),
		promise.Itself:          promise.Yes("at its own port, too"),
		promise.LoopbackClosed:  promise.Yes("the socket is bound to 127.0.0.1"),
		promise.V6ToV4:          promise.No("IPv6 clients reach only sockets that listen on IPv6"),
		promise.LANSource:       promise.Yes(""),
		promise.HostSource:      promise.No("a client that dials 127.0.0.1 has that source address"),
		promise.PeerSource:      promise.Yes("the host's address is the other workload's"),
		promise.InputFirewall:   promise.Yes("packets end at the host's stack"),
		promise.ForwardFirewall: promise.No("packets pass INPUT, never FORWARD"),
		promise.IPsec:           promise.Yes(""),
		promise.Survives:        promise.Yes("pinned; no process of Fairlead is on the path"),
	}
}
