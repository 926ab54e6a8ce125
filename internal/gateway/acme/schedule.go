package acme

import (
	"crypto/x509"
	"time"
)

// defaultBackoff are the waits after failed attempts; the last one repeats. Four attempts
// fall into the first hour: Let's Encrypt allows five failures per name and hour.
var defaultBackoff = []time.Duration{time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	4 * time.Hour, 8 * time.Hour, 24 * time.Hour}

// longestWait limits what an authority can ask for with Retry-After.
const longestWait = 7 * 24 * time.Hour

// attempt is the record of failed attempts. It is in the storage, so that a restart does
// not try again before the time.
type attempt struct {
	Names    []string  `json:"names"`
	Failures int       `json:"failures"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	Next     time.Time `json:"next"`
	// Settings identifies the resolver's settings: if they differ, the record is void.
	Settings string `json:"settings"`
}

// fail returns the record after one more failure.
func (a attempt) fail(now time.Time, waits []time.Duration, reason string, retryAfter time.Duration) attempt {
	wait := waits[min(a.Failures, len(waits)-1)]
	a.Failures++
	a.Reason, a.At = reason, now
	a.Next = now.Add(max(wait, min(retryAfter, longestWait)))
	return a
}

// renewalOf returns when the certificate is renewed: after two thirds of its life, which
// leaves the last third for attempts that fail.
func renewalOf(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
}
