package daemon_test

import (
	"errors"
	"testing"
	"time"

	"fairlead/internal/model"
)

// TestFailedServiceIsTriedLessOften: a service that the data planes refuse is tried after waits that grow, however
// often its servers change.
func TestFailedServiceIsTriedLessOften(t *testing.T) {
	w := newWorld(t)
	host := newGate(w)
	w.start()
	v := checked(w)
	v.Check.Interval = 10 * time.Millisecond
	other := v.Clone()
	other.Name, other.Addresses = "other", addrs("192.0.2.11")
	w.serves("10.0.0.2:8080")
	stop := w.serves("10.0.0.3:8080")
	for _, v := range []model.VirtualService{v, other} {
		w.serve(v)
		w.stands(v.Name, "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	}
	host.fail(errors.New("the kernel refuses the test"), "web")
	const changes = 30
	for range changes {
		stop()
		w.stands("other", "10.0.0.2:8080 up, 10.0.0.3:8080 down")
		stop = w.serves("10.0.0.3:8080")
		w.stands("other", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
	}
	// Waits of 1, 2, 4, 8 and 16 seconds, in case the changes take half a minute.
	if got := host.refused(); got == 0 || got > changes/2 {
		t.Errorf("the service was tried %d times during %d changes", got, 2*changes)
	}
	host.fail(nil, "")
	w.stands("web", "10.0.0.2:8080 up, 10.0.0.3:8080 up")
}
