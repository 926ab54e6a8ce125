package proxy

import (
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
)

// Promises implements publish.Mode.
func (Mode) Promises(d model.Driver) promise.Set {
	hidden := promise.No("the workload sees the host's address; a PROXY header can carry the client's")
	return publish.OfSandboxes(d, promise.Set{
		promise.LAN:             promise.Yes(""),
		promise.HostAddress:     promise.Yes(""),
		promise.Loopback4:       promise.Yes(""),
		promise.Loopback6:       promise.Yes(""),
		promise.Peer:            promise.Yes(""),
		promise.Itself:          promise.Yes(""),
		promise.LoopbackClosed:  promise.Yes("the socket is bound to 127.0.0.1"),
		promise.V6ToV4:          promise.Yes(""),
		promise.LANSource:       hidden,
		promise.HostSource:      promise.Yes("a process of the host has the host's address with or without the proxy"),
		promise.PeerSource:      hidden,
		promise.InputFirewall:   promise.Yes("packets end at the host's stack"),
		promise.ForwardFirewall: promise.No("packets pass INPUT and OUTPUT, never FORWARD"),
		promise.IPsec:           promise.Yes(""),
		promise.Survives:        promise.Yes("the proxy is a separate process, and the next daemon adopts it"),
	})
}
