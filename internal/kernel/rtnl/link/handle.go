// Package link creates, changes and deletes links with their settings, addresses,
// routes and shapers.
package link

import (
	"net/netip"
	"sync"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
)

// Handle changes the links of a host and of its sandboxes. Only one goroutine at a
// time may use it.
type Handle struct {
	*rtnl.Reader
	*handles.Cache
	ns *netns.Namespace

	// locals are the addresses of Fairlead's local routes as this process knows
	// them.
	localsMu sync.Mutex
	locals   map[netip.Addr]bool
}

// New returns a Handle for the host of the handles, which the reader uses too.
func New(c *handles.Cache, r *rtnl.Reader) *Handle { return &Handle{Reader: r, Cache: c, ns: c.Host()} }
