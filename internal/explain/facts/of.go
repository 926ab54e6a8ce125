package facts

import "fairlead/internal/kernel/sockdiag"

// Of adds the details of a socket's process. The socket may be of any network
// namespace.
func Of(l sockdiag.Listener) Listener { return process(l) }
