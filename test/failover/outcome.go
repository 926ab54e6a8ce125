package failover

import "time"

// Outcome is what clients have noticed of one event.
type Outcome struct {
	Asked, Failed int
	// Notice is the time from the event to the start of the last request that
	// failed, 0 if none did: from then on the dead server was out.
	Notice time.Duration
	// Slowest is the longest that a request took which was answered.
	Slowest time.Duration
	// Errors counts the failed requests by why.
	Errors map[string]int
}

// Judge judges the requests that were over after an event, which was at that
// many ns since 1970.
func Judge(all []Request, event int64) Outcome {
	o := Outcome{Errors: map[string]int{}}
	for _, r := range all {
		if r.End() < event {
			continue
		}
		o.Asked++
		if r.Err == "" {
			o.Slowest = max(o.Slowest, time.Duration(r.Took))
			continue
		}
		o.Failed++
		o.Errors[r.Err]++
		o.Notice = max(o.Notice, time.Duration(r.Start-event))
	}
	return o
}

// Back returns the time from an event until a server has first answered, and
// whether it has.
func Back(all []Request, event int64, by string) (time.Duration, bool) {
	for _, r := range all {
		if r.Start >= event && r.By == by {
			return time.Duration(r.End() - event), true
		}
	}
	return 0, false
}
