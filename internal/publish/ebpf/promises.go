package ebpf

import (
	"fairlead/internal/model"
	"fairlead/internal/promise"
	"fairlead/internal/publish"
)

// Promises implements publish.Mode.
func (Mode) Promises(d model.Driver) promise.Set {
	if d.Traits().SubLinks {
		return nil // the sandbox's link has no end on the host
	}
	return publish.OfSandboxes(d, promise.Set{
		promise.LAN:             promise.Yes(""),
		promise.HostAddress:     promise.Yes("redirected at connect"),
		promise.Loopback4:       promise.Yes("redirected at connect"),
		promise.Loopback6:       promise.Yes("redirected at connect"),
		promise.Peer:            promise.Yes(""),
		promise.Itself:          promise.Yes("masqueraded"),
		promise.LoopbackClosed:  promise.Yes("packets from or for 127.0.0.0/8 are left to the kernel, which drops them"),
		promise.V6ToV4:          promise.Yes("processes of the host at connect, others via the user-space proxy"),
		promise.LANSource:       promise.Yes(""),
		promise.HostSource:      promise.Yes("its address in the endpoint's network"),
		promise.PeerSource:      promise.Yes(""),
		promise.InputFirewall:   promise.No("packets are redirected before netfilter"),
		promise.ForwardFirewall: promise.No("packets bypass netfilter and conntrack"),
		promise.IPsec:           promise.No("redirected packets bypass IPsec, so packets that a policy covers are left to the host, which refuses them"),
		promise.Survives:        promise.Yes("pinned"),
	})
}
