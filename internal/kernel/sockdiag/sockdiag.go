// Package sockdiag reads the sockets in a network namespace, as ss(8) does
// (sock_diag(7)), and finds their processes. It cannot change anything.
package sockdiag

import "fairlead/internal/kernel/netns"

// Reader reads the sockets in a network namespace. It is safe for concurrent use.
type Reader struct{ ns *netns.Namespace }

// New returns a Reader of the namespace, which must stay open.
func New(ns *netns.Namespace) *Reader { return &Reader{ns} }
