package daemon

import (
	"fairlead/internal/daemon/external"
)

// displace implements Daemon.Displace.
func (x *externals) displace(name string) (bool, error) {
	a, known := x.desired.Attachment(name)
	if !known {
		return true, nil
	}
	if !external.Is(a) {
		return false, nil
	}
	var scan external.Scan
	if !x.sandboxes.external.Displaceable(a, &scan) {
		return false, nil
	}
	return true, x.applier.cleanUp(map[string]bool{a.Ref: true})
}
