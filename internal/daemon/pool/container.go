package pool

import (
	"fmt"
	"maps"
	"time"

	"fairlead/internal/sandbox"
)

// Container is the known state of an attached container. It is stored as a note.
type Container struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Started is the start time as the engine writes it. It differs for each run.
	Started string `json:"started,omitempty"`
	// Stopping is why this run is about to end, since StoppedAt; empty if it is not.
	// Ended says that it has ended. StopTimeout is how long the end may take; 0 is no
	// limit.
	Stopping    string        `json:"stopping,omitempty"`
	StoppedAt   time.Time     `json:"stoppedAt,omitzero"`
	Ended       bool          `json:"ended,omitempty"`
	StopTimeout time.Duration `json:"patience,omitempty"`
	// RunsOn says that the container still ran StopTimeout after it was stopped. It is
	// empty if that did not happen.
	RunsOn string `json:"runsOn,omitempty"`
	// Paused says that the container's processes are paused.
	Paused bool `json:"paused,omitempty"`
	// Health is the result of the engine's health check; empty if there is none.
	Health string `json:"health,omitempty"`
}

// Equal reports whether both states are equal.
func (c Container) Equal(o Container) bool {
	return c.Name == o.Name && c.Started == o.Started && c.Stopping == o.Stopping && c.StoppedAt.Equal(o.StoppedAt) &&
		c.Ended == o.Ended &&
		c.StopTimeout == o.StopTimeout && c.RunsOn == o.RunsOn && c.Paused == o.Paused && c.Health == o.Health &&
		maps.Equal(c.Labels, o.Labels)
}

// Leaves returns why the container must get no new flows, or empty if it may.
func (c Container) Leaves() string {
	if c.Stopping == "" && c.Paused {
		return "its container is paused"
	}
	return c.Stopping
}

// stopCause is the beginning of the cause of a drain whose container is being stopped.
const stopCause = "its container is being stopped"

// After returns the state of the container after an event.
func (c Container) After(n sandbox.ContainerEvent, now time.Time) Container {
	if n.Stopping != "" {
		return c.stopped(n, now)
	}
	next := Container{Name: n.Name, Labels: n.Labels, Health: n.Health, Paused: n.Paused, Started: n.Started,
		StopTimeout: n.StopTimeout}
	if c.Started == n.Started {
		next.Stopping, next.StoppedAt, next.Ended, next.RunsOn = c.Stopping, c.StoppedAt, c.Ended, c.RunsOn
	}
	return next
}

// EndStop returns the state of a container that still runs after StopTimeout: it ignores
// the signal, or the engine has given up. It returns false for any other container.
func (c Container) EndStop(now time.Time) (Container, bool) {
	if !c.Ending() || !c.outlived(c.StoppedAt, now) {
		return c, false
	}
	c.RunsOn = fmt.Sprintf("its container still runs, %s after it was stopped", c.StopTimeout)
	c.Stopping, c.StoppedAt = "", time.Time{}
	return c, true
}

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

// Ending reports whether a container is being stopped and may outlive that.
func (c Container) Ending() bool { return c.Stopping != "" && !c.Ended && c.StopTimeout > 0 }
