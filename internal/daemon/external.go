package daemon

import (
	"fairlead/internal/daemon/external"
	"fairlead/internal/kernel/netns"
)

// recordExternal stores the namespaces of external endpoints that were seen with a
// process.
func (d *Daemon) recordExternal() {
	next, changed := d.desired.Clone(), false
	var scan external.Scan
	for i, a := range next.Attachments {
		if !external.Is(a) || a.Sandbox == "" || a.Namespace != "" || !d.external.Seen(a, &scan) {
			continue
		}
		if id, err := netns.Identify(a.Sandbox); err == nil {
			next.Attachments[i].Namespace, changed = id, true
		}
	}
	if changed {
		d.warn("store the sandboxes of external endpoints", d.save(next))
	}
}

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
	if !d.external.Displaceable(a, &scan) {
		return false, nil
	}
	return true, d.cleanUp(map[string]bool{a.Ref: true})
}
