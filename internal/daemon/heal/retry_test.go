package heal_test

import (
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/daemon/heal"
)

// TestRetries: the waits of an object grow with each failure, and others do not wait for it.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := heal.Retries{}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			r.Failed("web")
			if wait := r.Next(); wait != want*time.Second || !r.Waits("web") || r.Waits("other") {
				t.Fatalf("wait %s, want %d s", wait, want)
			}
			time.Sleep(want * time.Second)
			if r.Waits("web") {
				t.Fatalf("it waits longer than %d s", want)
			}
		}
		r.Keep(func(string) bool { return false })
		if r.Next() != 0 {
			t.Error("an object that has succeeded waits")
		}
		if r.Failed("web"); r.Next() != time.Second {
			t.Errorf("the first wait after a success is %s", r.Next())
		}
	})
}
