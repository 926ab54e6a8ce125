package facts

import "fairlead/internal/kernel"

// Of adds the details of a socket's process. The socket may be of any network
// namespace.
func Of(l kernel.Listener) Listener { return process(l) }
