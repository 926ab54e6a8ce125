package daemon

import (
	"time"
)

// endStops returns containers to service that still run after StopTimeout: they ignore
// the signal, or the engine has given up.
func (d *Daemon) endStops() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refs []string
	changed, now := map[string]any{}, time.Now()
	for ref, c := range d.services.containers {
		c, runsOn := c.EndStop(now)
		if !runsOn {
			continue
		}
		d.services.containers[ref] = c
		changed[containerNote+ref] = c
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		d.updateContainers(refs, changed)
	}
}
