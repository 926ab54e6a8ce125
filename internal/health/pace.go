package health

import (
	"time"

	"fairlead/internal/model"
)

// Condition is the state and weight of a real server at a time.
type Condition struct {
	State model.RealState `json:"state,omitempty"`
	// Share is how much of its weight the server gets, in percent.
	Share int `json:"share"`
}

// steps returns in how many steps a weight grows. Each step changes the kernel's
// tables, so there are at most 20, at least a second apart.
func (s settings) steps() int64 {
	return min(20, max(1, int64(s.slowStart/time.Second)))
}

// condition returns the record's condition now.
func (r Record) condition(s settings, now time.Time) Condition {
	c := Condition{State: r.State(), Share: 100}
	if r.Said.Weighs {
		c.Share = r.Said.Share
	}
	if r.Growing.IsZero() || s.slowStart <= 0 {
		return c
	}
	grown := int64(now.Sub(r.Growing)) * s.steps() / int64(s.slowStart)
	if grown < s.steps() && c.Share > 0 {
		c.Share = max(1, c.Share*int(grown+1)/int(s.steps()+1))
	}
	return c
}

// wait returns the time from one check to the next. random is in [0, 1).
func (r Record) wait(s settings, random float64) time.Duration {
	d := s.interval
	switch {
	case !r.Known || r.Streak > 0:
		d = s.fast
	case !r.Up:
		d = s.down
	}
	return d + time.Duration((2*random-1)*float64(d)*float64(s.jitter)/100)
}

// turns returns when the record's condition next changes without a check; zero
// for never.
func (r Record) turns(s settings, now time.Time) time.Time {
	switch {
	case !r.Growing.IsZero() && s.slowStart > 0:
		grown := int64(now.Sub(r.Growing)) * s.steps() / int64(s.slowStart)
		return r.Growing.Add(time.Duration((grown+1)*int64(s.slowStart)/s.steps() + 1))
	case !s.checked && !r.Up && r.Until.Before(now):
		return now
	case !s.checked && !r.Up:
		return r.Until
	}
	return time.Time{}
}
