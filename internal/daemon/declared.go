package daemon

import (
	"fairlead/internal/api"
	"fairlead/internal/daemon/stored"
)

// State returns the objects that commands and files have created, as one Spec. Applying
// this Spec changes nothing. State omits objects of Docker. The notes name what a Spec
// cannot express.
func (d *Daemon) State() (api.Spec, []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return stored.Spec(d.desired.Clone())
}
