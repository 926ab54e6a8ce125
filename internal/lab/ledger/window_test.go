package ledger

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHurry checks that a thread has precedence while it reads an edge, and its own priority afterwards.
func TestHurry(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with its changed priority
	priority := func() int {
		t.Helper()
		p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Fatal(err)
		}
		return 20 - p
	}
	const own = 5
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, own); err != nil {
		t.Fatal(err)
	}
	restore := hurry()
	if got := priority(); got != -20 {
		t.Errorf("the nice value at an edge is %d, want -20", got)
	}
	restore()
	if got := priority(); got != own {
		t.Errorf("the nice value after an edge is %d, want %d", got, own)
	}
}
