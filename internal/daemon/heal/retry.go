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

// Retries are the waits of several objects after their failures, by name.
type Retries map[string]*Retry

// Keep ends the waits of the objects for which keep returns false: they have succeeded, or are gone.
func (r Retries) Keep(keep func(name string) bool) {
	for name := range r {
		if !keep(name) {
			delete(r, name)
		}
	}
}

// Waits reports whether the wait after a failure of the object is not over.
func (r Retries) Waits(name string) bool { return r[name] != nil && r[name].Waits() }

// Failed starts a wait of the object that is longer than its last one.
func (r Retries) Failed(name string) {
	if r[name] == nil {
		r[name] = &Retry{}
	}
	r[name].Failed()
}

// Next returns how long to wait before the next attempt of one of the objects; 0 if none is due.
func (r Retries) Next() (wait time.Duration) {
	for _, one := range r {
		wait = one.Next(wait)
	}
	return wait
}
