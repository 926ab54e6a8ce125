package daemon

import (
	"fairlead/internal/daemon/external"
)

// RemoveDead removes the external endpoints whose sandboxes have ended.
func (d *Daemon) RemoveDead() { d.verify(func(*watchedSandbox) bool { return false }) }

// Displace removes an external endpoint because another one needs its resources,
// unless the endpoint is alive, or was joined during this process's lifetime and is
// still starting. It reports whether the endpoint no longer exists. If it reports true
// with an error, the endpoint is removed from the desired state but not from the host.
func (d *Daemon) Displace(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, known := d.desired.Attachment(name)
	if !known {
		return true, nil
	}
	if !external.Is(a) {
		return false, nil
	}
	var scan external.Scan
	if !d.sandboxes.external.Displaceable(a, &scan) {
		return false, nil
	}
	return true, d.cleanUp(map[string]bool{a.Ref: true})
}
