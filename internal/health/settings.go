package health

import (
	"cmp"
	"time"

	"fairlead/internal/model"
)

// The defaults that model.Check promises.
const (
	defaultInterval = 2 * time.Second
	longestTimeout  = 5 * time.Second
	defaultRise     = 2
	defaultFall     = 3
	defaultJitter   = 10
)

// settings are a check's numbers with the defaults filled in.
type settings struct {
	interval, fast, down, timeout time.Duration
	// beside is how long a check may be unanswered before the next one begins in
	// parallel; 0 for never.
	beside     time.Duration
	rise, fall int
	// jitter is in percent of an interval.
	jitter    int
	slowStart time.Duration
	// checked is true if checks are made. passive is true if failed connections of
	// clients count.
	checked, passive bool
}

func settle(c model.Check) settings {
	s := settings{
		interval:  cmp.Or(c.Interval, defaultInterval),
		rise:      cmp.Or(c.Rise, defaultRise),
		fall:      cmp.Or(c.Fall, defaultFall),
		jitter:    max(0, cmp.Or(c.Jitter, defaultJitter)),
		slowStart: c.SlowStart,
		checked:   c.Checks(),
		passive:   c.Passive,
	}
	s.fast, s.down = cmp.Or(c.Fast, s.interval), cmp.Or(c.Down, s.interval)
	s.timeout = cmp.Or(c.Timeout, min(s.interval, longestTimeout))
	if b := cmp.Or(c.Fast, s.timeout/4); b < s.timeout && overlaps(c) {
		s.beside = b
	}
	return s
}

// overlaps reports whether two checks of the same server may run in parallel. Checks
// with an agent may not, because they take long even when they pass.
func overlaps(c model.Check) bool {
	t, known := typeOf(c.Type)
	return known && t.overlaps != nil && t.overlaps(c) && c.Agent == 0
}

// checkedPort returns the port to check of a service's real server.
func checkedPort(v model.VirtualService, r model.RealServer) uint16 {
	dialled := uint16(0)
	if len(v.Ports) > 0 {
		dialled = v.Ports[0].First
	}
	return cmp.Or(v.Check.Port, r.Port, dialled)
}
