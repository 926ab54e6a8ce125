package repair

import (
	"testing"
	"time"
)

// TestPace: rules are read at once after a change, then for a tenth of the time, and again when
// a network has waited.
func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := pace{}
	check := func(what string, want time.Duration, waits bool) {
		t.Helper()
		if got, ok := p.wait(now); ok != waits || ok && got != want {
			t.Errorf("%s: %s, %t, want %s, %t", what, got, ok, want, waits)
		}
	}
	check("without a change", 0, false)
	p.wanted = true
	check("after a change", 0, true)
	p.read(now, 150*time.Millisecond, time.Time{})
	check("after it was read", 0, false)
	p.wanted = true
	check("after another change", 0, true)
	p.read(now, 150*time.Millisecond, now.Add(time.Minute))
	check("a network waits", time.Minute, true)
	p.wanted = true
	check("a network waits, after a third change", time.Second, true)
	now = now.Add(time.Second)
	check("a second later", 0, true)
	p.read(now, 150*time.Millisecond, now.Add(time.Millisecond))
	check("a network waits for less than the pause", 1500*time.Millisecond, true)
	now = now.Add(time.Hour)
	check("a network is due", 0, true)
	p.read(now, 0, now)
	check("a network could not follow", together, true)
	p.wanted = true
	check("after a quiet time", 0, true)
	p.read(now, time.Second, time.Time{})
	p.wanted = true
	check("after a long reading", longest, true)
	now = now.Add(longest - time.Second)
	check("after further changes", time.Second, true)
	now = now.Add(time.Second)
	check("after the longest wait", 0, true)
}
