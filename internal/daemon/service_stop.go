package daemon

import (
	"fmt"
	"time"

	"fairlead/internal/sandbox"
)

// stopCause is the beginning of the cause of a drain whose container is being stopped.
const stopCause = "its container is being stopped"

// stopped returns the state of a container that is being stopped or has ended. It
// ignores a stop signal if the container has already outlived an earlier one.
func (c Container) stopped(n sandbox.ContainerEvent, now time.Time) Container {
	at := n.StoppedAt
	if at.IsZero() {
		at = now
	}
	if c.outlived(at, now) && !n.Ended {
		return c
	}
	if c.Stopping == "" {
		c.Stopping = fmt.Sprintf("%s (%s)", stopCause, n.Stopping)
	}
	c.StoppedAt, c.Ended, c.RunsOn = at, n.Ended, ""
	return c
}

// outlived reports whether StopTimeout has passed since the signal.
func (c Container) outlived(signal, now time.Time) bool {
	return c.StopTimeout > 0 && now.Sub(signal) > c.StopTimeout
}

// ending reports whether a container is being stopped and may outlive that.
func (c Container) ending() bool { return c.Stopping != "" && !c.Ended && c.StopTimeout > 0 }

// endStops returns containers to service that still run after StopTimeout: they ignore
// the signal, or the engine has given up.
func (d *Daemon) endStops() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refs []string
	changed, now := map[string]any{}, time.Now()
	for ref, c := range d.services.containers {
		if !c.ending() || !c.outlived(c.StoppedAt, now) {
			continue
		}
		c.RunsOn = fmt.Sprintf("its container still runs, %s after it was stopped", c.StopTimeout)
		c.Stopping, c.StoppedAt = "", time.Time{}
		d.services.containers[ref] = c
		changed[containerNote+ref] = c
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		d.updateContainers(refs, changed)
	}
}
