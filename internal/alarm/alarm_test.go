package alarm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntil waits for a time by a clock that is set meanwhile. The wait ends soon after the clock has passed the time,
// and not before.
func TestUntil(t *testing.T) {
	for name, c := range map[string]struct {
		set, at  time.Duration
		earliest time.Duration
		latest   time.Duration
	}{
		"nothing is set":      {0, 10 * time.Hour, 10 * time.Hour, 10 * time.Hour},
		"the clock jumps":     {9 * time.Hour, 10 * time.Hour, time.Hour, time.Hour + Longest},
		"past the time":       {20 * time.Hour, 10 * time.Hour, time.Minute, time.Minute + Longest},
		"the clock goes back": {-5 * time.Hour, 10 * time.Hour, 15 * time.Hour, 15 * time.Hour},
		"a time in the past":  {0, -time.Hour, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				now := func() time.Duration {
					passed := time.Since(begun)
					if passed >= time.Minute {
						passed += c.set
					}
					return passed
				}
				if err := Until(t.Context(), func() time.Duration { return c.at - now() }); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took < c.earliest || took > c.latest {
					t.Errorf("the wait takes %s, want %s to %s", took, c.earliest, c.latest)
				}
			})
		})
	}
}

// TestUntilEnds ends the context of a wait.
func TestUntilEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		err := Until(ctx, func() time.Duration { return 2 * time.Hour })
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != time.Hour {
			t.Errorf("the wait ends after %s: %v", took, err)
		}
	})
}

// TestSuspended reads how long this host was suspended: it stays the same while the host runs.
func TestSuspended(t *testing.T) {
	first := Suspended()
	for range 1000 {
		if now := Suspended(); now < first || now > first+resolution {
			t.Fatalf("the host was suspended for %s, and then for %s", first, now)
		}
	}
}
