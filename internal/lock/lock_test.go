package lock

import "testing"

// outside reports whether Outside panics in the calling goroutine.
func outside() (panics bool) {
	defer func() { panics = recover() != nil }()
	Outside("a test")
	return false
}

// TestHolderWaitsForNothing checks in which goroutines Outside panics.
func TestHolderWaitsForNothing(t *testing.T) {
	var one, two Mutex
	if outside() {
		t.Error("a goroutine without a mutex may not wait")
	}
	one.Lock()
	if one.TryLock() || !two.TryLock() {
		t.Error("TryLock locks a locked mutex, or does not lock a free one")
	}
	other := make(chan bool)
	go func() { other <- outside() }()
	if <-other {
		t.Error("a goroutine may not wait while another one holds a mutex")
	}
	one.Unlock()
	if !outside() {
		t.Error("the holder of one of two mutexes waits")
	}
	two.Unlock()
	if outside() {
		t.Error("a goroutine may not wait after it has unlocked")
	}
}
