package daemon

import (
	"fmt"
	"time"

	"fairlead/internal/sandbox"
)

// stopCause begins why a real server drains whose container is being stopped.
const stopCause = "its container is being stopped"

// stopped returns what is known of a container that is told to be stopped, or to
// have ended. A signal that it has outlived before stops it no more.
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

// outlived reports whether a container that runs has had its time since a
// signal.
func (c Container) outlived(signal, now time.Time) bool {
	return c.StopTimeout > 0 && now.Sub(signal) > c.StopTimeout
}

// ending reports whether a container may yet outlive what stops it.
func (c Container) ending() bool { return c.Stopping != "" && !c.Ended && c.StopTimeout > 0 }

// endStops has containers serve again that run on though they were stopped: they
// take no notice of the signal, or the engine has given it up.
func (d *Daemon) endStops() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var refs []string
	changed, now := map[string]any{}, time.Now()
	for ref, c := range d.services.containers {
		if !c.ending() || !c.outlived(c.StoppedAt, now) {
			continue
		}
		c.RunsOn = fmt.Sprintf("its container runs on, %s after it was stopped", c.StopTimeout)
		c.Stopping, c.StoppedAt = "", time.Time{}
		d.services.containers[ref] = c
		changed[containerNote+ref] = c
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		d.noteContainers(refs, changed)
	}
}
