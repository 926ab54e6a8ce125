package condition

import (
	"testing"
	"time"

	"fairlead/internal/model/gateway"
)

// TestFail takes a server out by two failures within the window, and by no others.
func TestFail(t *testing.T) {
	now := time.Now()
	p := NewPassive(&gateway.PassiveHealthCheck{FailureWindow: time.Hour, MaxFailedAttempts: 2})
	c := new(Condition)
	for _, then := range []func() bool{
		func() bool { return c.Fail(p, now.Add(-2*time.Hour)) },
		func() bool { return c.Fail(p, now) }, // the first one is too old
		func() bool { c.Succeed(); return c.Fail(p, now) },
	} {
		if then() || !c.IsUp() {
			t.Fatal("one failure takes the server out")
		}
	}
	if !c.Fail(p, now) || c.IsUp() {
		t.Error("two failures do not take the server out")
	}
	once := NewPassive(&gateway.PassiveHealthCheck{FailureWindow: time.Hour})
	if c = new(Condition); !c.Fail(once, now.Add(-2*time.Hour)) || !c.IsUp() {
		t.Error("the server is not up after the window")
	}
	c = new(Condition)
	if c.Down.Store(true); c.IsUp() {
		t.Error("a server that failed its check is up")
	}
}

// TestPace halves the average of a server that gets no requests.
func TestPace(t *testing.T) {
	now := time.Now()
	p := new(Pace)
	p.Add(time.Second, now)
	p.Add(9*time.Second, now)
	for idle, want := range map[time.Duration]time.Duration{0: 2 * time.Second, forget: time.Second,
		2 * forget: time.Second / 2, time.Hour: 0} {
		if got := time.Duration(p.At(now.Add(idle))); got.Round(time.Millisecond) != want {
			t.Errorf("after %s: %s, want %s", idle, got, want)
		}
	}
}
