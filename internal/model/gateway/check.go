package gateway

import (
	"fmt"
	"time"
)

// The shortest times of a health check: whoever may set labels decides them, and each check costs the gateway and the
// server work.
const (
	LeastCheckInterval = 100 * time.Millisecond
	LeastCheckTimeout  = 10 * time.Millisecond
)

// Bounded returns the health check with the times that are in effect, and what it has replaced: too short times by the
// shortest ones, negative times by the defaults.
func (c HealthCheck) Bounded() (HealthCheck, []string) {
	notes := boundTimes(&c.Interval, &c.UnhealthyInterval, &c.Timeout)
	return c, notes
}

// Bounded is as that of HealthCheck.
func (c TCPHealthCheck) Bounded() (TCPHealthCheck, []string) {
	notes := boundTimes(&c.Interval, &c.UnhealthyInterval, &c.Timeout)
	return c, notes
}

func boundTimes(interval, unhealthy, timeout *time.Duration) (notes []string) {
	bound := func(name string, value *time.Duration, least time.Duration) {
		switch {
		case *value < 0:
			notes = append(notes, fmt.Sprintf("healthCheck.%s %s is negative: the default is in effect", name, *value))
			*value = 0
		case *value > 0 && *value < least:
			notes = append(notes, fmt.Sprintf("healthCheck.%s %s is too short: %s is in effect", name, *value, least))
			*value = least
		}
	}
	bound("interval", interval, LeastCheckInterval)
	bound("unhealthyInterval", unhealthy, LeastCheckInterval)
	bound("timeout", timeout, LeastCheckTimeout)
	return notes
}
