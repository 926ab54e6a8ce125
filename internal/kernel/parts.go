package kernel

import "fairlead/internal/kernel/sockdiag"

// Sockets returns the reader of the sockets in the host's namespace.
func (h *Host) Sockets() *sockdiag.Reader { return sockdiag.New(h.ns) }
