// Package rawtcp sends TCP segments through raw sockets: it resets connections
// whose server is gone, and tests whether servers accept connections to a virtual
// address.
package rawtcp

import (
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
)

// Handle sends segments in a network namespace. It is safe for concurrent use.
type Handle struct {
	ns    *netns.Namespace
	rtnl  *rtnl.Reader
	ended endedCounts
}

// New returns a Handle for the host of the reader.
func New(r *rtnl.Reader) *Handle { return &Handle{ns: r.Netns(), rtnl: r} }
