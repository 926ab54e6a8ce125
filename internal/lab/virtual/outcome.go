package virtual

import (
	"cmp"
	"slices"
	"time"

	"fairlead/internal/lab/failover"
)

// Late is the limit above which a connection attempt counts as failed. A client sends a
// SYN again after 1 s, so an attempt that was lost takes longer.
const Late = 100 * time.Millisecond

// Outcome is what the observer and the client noticed of one event.
type Outcome struct {
	// Moved is the time from the event until the client got an answer from another host
	// than the holder at the event; Ended is false if it got none.
	Moved time.Duration
	Ended bool
	// Overlap is for how long two hosts answered for the address at the same time.
	Overlap time.Duration
	// Attempts counts the connection attempts that were not over before the event,
	// Failed those of them that were not answered within Late, and Early those that
	// failed before the event.
	Attempts, Failed, Early int
	// Slowest is the longest time until an attempt was answered.
	Slowest time.Duration
	// Errors counts the failed attempts per reason.
	Errors map[string]int
}

// tooLate is the reason of an attempt that was answered after Late.
const tooLate = "answered too late"

// Judge evaluates the client's attempts, sorted by their start, and the observer's log
// after an event of the holder.
func Judge(all []failover.Request, log []Answer, holder string, event time.Time) Outcome {
	o := Outcome{Overlap: overlap(since(log, event)), Errors: map[string]int{}}
	at := event.UnixNano()
	for _, r := range all {
		took := time.Duration(r.Took)
		reason := r.Err
		if reason == "" && took > Late {
			reason = tooLate
		}
		if r.End() < at {
			if reason != "" {
				o.Early++
			}
			continue
		}
		o.Attempts++
		if reason != "" {
			o.Failed++
			o.Errors[reason]++
		}
		if r.Err != "" {
			continue
		}
		o.Slowest = max(o.Slowest, took)
		if after := time.Duration(r.End() - at); r.By != holder && (!o.Ended || after < o.Moved) {
			o.Ended, o.Moved = true, after
		}
	}
	return o
}

// since returns the answers from a time on.
func since(log []Answer, from time.Time) []Answer {
	return log[first(log, from):]
}

// first returns the index of the first answer that is not before a time.
func first(log []Answer, from time.Time) int {
	i, _ := slices.BinarySearchFunc(log, from, func(a Answer, t time.Time) int { return a.At.Compare(t) })
	return i
}

// span is a time in which a host answered every question.
type span struct{ from, to time.Time }

// overlap returns for how long at least two hosts answered at the same time. A host that
// answers two questions that are less than silence apart has answered all the time
// between them.
func overlap(log []Answer) time.Duration {
	spans := map[string][]span{}
	for _, a := range log {
		of := spans[a.MAC]
		if n := len(of); n > 0 && a.At.Sub(of[n-1].to) < silence {
			of[n-1].to = a.At
			continue
		}
		spans[a.MAC] = append(of, span{a.At, a.At})
	}
	return atOnce(spans)
}

// atOnce returns for how long spans of at least two hosts overlap.
func atOnce(spans map[string][]span) (total time.Duration) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, of := range spans {
		for _, s := range of {
			changes = append(changes, change{s.from, 1}, change{s.to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	answering := 0
	for i, c := range changes {
		if answering > 1 {
			total += c.at.Sub(changes[i-1].at)
		}
		answering += c.by
	}
	return total
}
