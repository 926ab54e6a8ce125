package heal

import "time"

// retryFirst and retryLast are the shortest and the longest wait after a failure.
const retryFirst, retryLast = time.Second, 30 * time.Second

// Retry is when everything is repaired again after a failure. The zero value means that
// the last repair succeeded.
type Retry struct {
	wait  time.Duration
	until time.Time
}

// Due reports whether the last repair failed and its wait is over.
func (r *Retry) Due() bool { return r.wait > 0 && !r.Waits() }

// Waits reports whether the wait after a failure is not over.
func (r *Retry) Waits() bool { return time.Until(r.until) > 0 }

// Succeeded ends the waits.
func (r *Retry) Succeeded() { r.wait = 0 }

// Failed starts a wait that is longer than the last one. It reports whether this is the
// first failure.
func (r *Retry) Failed() (first bool) {
	first = r.wait == 0
	r.wait = min(max(2*r.wait, retryFirst), retryLast)
	r.until = time.Now().Add(r.wait)
	return first
}

// Next returns how long to wait before the next attempt: the shorter one of the wait
// after a failure and another wait; 0 if there is none.
func (r *Retry) Next(other time.Duration) time.Duration {
	if r.wait > 0 && (other == 0 || time.Until(r.until) < other) {
		return max(time.Until(r.until), time.Millisecond)
	}
	return other
}
