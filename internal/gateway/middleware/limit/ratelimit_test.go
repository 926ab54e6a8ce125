package limit

import (
	"testing"
	"time"
)

// TestRateLimitMemory takes tokens for more sources than fit: full buckets are removed
// first, then others.
func TestRateLimitMemory(t *testing.T) {
	l := &rateLimit{interval: time.Second, burst: time.Second, full: map[uint64]time.Duration{}}
	for source := range uint64(maxSources) {
		l.take(source, 0)
	}
	for source := range uint64(10) {
		l.take(maxSources+source, time.Second/2)
	}
	if got := len(l.full); got != maxSources {
		t.Errorf("%d buckets, want %d", got, maxSources)
	}
	l.take(2*maxSources, 2*time.Second)
	if got := len(l.full); got != 1 {
		t.Errorf("%d buckets after all are full, want 1", got)
	}
}
