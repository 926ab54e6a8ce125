package facts

import "fairlead/internal/kernel"

// Of completes a socket by more of its process, whichever namespace it is in.
func Of(l kernel.Listener) Listener { return process(l) }
