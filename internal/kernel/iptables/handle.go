// Package iptables keeps Fairlead's chains in the filter tables of iptables in which
// Docker drops forwarded packets, of iptables-nft and of iptables-legacy.
package iptables

import (
	"sync"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/rtnl"
)

// Handle changes and reads the filter tables of a host. It is safe for concurrent
// use.
type Handle struct {
	ns   *netns.Namespace
	rtnl *rtnl.Reader
	nft  *nft.Handle
	// leaveDocker leaves Docker's firewall unchanged.
	leaveDocker bool

	mu sync.Mutex
	// legacy are the filter tables of iptables-legacy.
	legacy [2]legacyTable
}

// New returns a Handle. With leaveDocker it finds no firewall of Docker.
func New(r *rtnl.Reader, n *nft.Handle, leaveDocker bool) *Handle {
	return &Handle{ns: r.Netns(), rtnl: r, nft: n, leaveDocker: leaveDocker}
}
