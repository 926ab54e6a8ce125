// Package tunnel creates, changes and deletes the tunnels of overlay networks:
// VXLAN links, WireGuard links, and the entries that forward through them.
package tunnel

import (
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rtnl/link"
)

// Handle changes the tunnels of a host. Only one goroutine at a time may use it.
type Handle struct {
	*rtnl.Reader
	*handles.Cache
	ns    *netns.Namespace
	links *link.Handle
}

// New returns a Handle for the host of the links.
func New(links *link.Handle) *Handle {
	return &Handle{Reader: links.Reader, Cache: links.Cache, ns: links.Host(), links: links}
}
