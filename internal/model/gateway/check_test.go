package gateway_test

import (
	"testing"
	"time"

	"fairlead/internal/model/gateway"
)

// TestCheckTimes checks the times of health checks at their limits, and beyond.
func TestCheckTimes(t *testing.T) {
	const interval, timeout = gateway.LeastCheckInterval, gateway.LeastCheckTimeout
	for _, test := range []struct {
		set, want [3]time.Duration
		notes     int
	}{
		{[3]time.Duration{}, [3]time.Duration{}, 0},
		{[3]time.Duration{interval, interval, timeout}, [3]time.Duration{interval, interval, timeout}, 0},
		{[3]time.Duration{interval - 1, interval - 1, timeout - 1}, [3]time.Duration{interval, interval, timeout}, 3},
		{[3]time.Duration{1, time.Hour, 0}, [3]time.Duration{interval, time.Hour, 0}, 1},
		{[3]time.Duration{-time.Second, -1, -time.Hour}, [3]time.Duration{}, 3},
	} {
		c, notes := gateway.HealthCheck{Interval: test.set[0], UnhealthyInterval: test.set[1],
			Timeout: test.set[2]}.Bounded()
		tcp, more := gateway.TCPHealthCheck{Interval: test.set[0], UnhealthyInterval: test.set[1],
			Timeout: test.set[2]}.Bounded()
		for _, got := range [][3]time.Duration{{c.Interval, c.UnhealthyInterval, c.Timeout},
			{tcp.Interval, tcp.UnhealthyInterval, tcp.Timeout}} {
			if got != test.want {
				t.Errorf("%v are in effect for %v, want %v", got, test.set, test.want)
			}
		}
		if len(notes) != test.notes || len(more) != test.notes {
			t.Errorf("%v: %q, %q, want %d notes", test.set, notes, more, test.notes)
		}
	}
}
