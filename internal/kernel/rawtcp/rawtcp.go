// Package rawtcp sends TCP segments through raw sockets: it resets connections
// whose server is gone.
package rawtcp

import "fairlead/internal/kernel/netns"

// Handle sends segments in a network namespace. It is safe for concurrent use.
type Handle struct {
	ns    *netns.Namespace
	ended endedCounts
}

// New returns a Handle for the namespace, which must stay open.
func New(ns *netns.Namespace) *Handle { return &Handle{ns: ns} }
