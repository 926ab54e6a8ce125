package h2

import "time"

// The resets that a client may send: as many at once, and then so many per second, as in nghttp2
// (CVE-2023-44487). More are accepted from a client that lets half of its requests complete.
const (
	resetsAtOnce    = 1000
	resetsPerSecond = 33
)

// Resets counts the requests of a connection and those that its client resets.
type Resets struct {
	requests, all int
	// spent is how many of resetsAtOnce are used, as of the time at.
	spent float64
	at    time.Time
}

// Request counts a request.
func (r *Resets) Request() { r.requests++ }

// Reset counts a reset, and reports whether there are too many.
func (r *Resets) Reset(now time.Time) bool {
	if r.all++; r.all > 1 {
		r.spent = max(0, r.spent-now.Sub(r.at).Seconds()*resetsPerSecond)
	}
	r.at = now
	r.spent++
	return r.spent > resetsAtOnce && 2*r.all > r.requests
}
