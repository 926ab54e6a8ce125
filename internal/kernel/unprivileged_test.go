package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnprivileged checks that a process without root can read its own namespace,
// except the firewall rules.
func TestUnprivileged(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread keeps the changed user and ends
		const unprivilegedUID = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unprivilegedUID, unprivilegedUID,
			unprivilegedUID); errno != 0 {
			done <- errno
			return
		}
		done <- errors.Join(unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0), readOwn())
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func readOwn() error {
	h, err := Open("", Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	inside, err := h.Inspect().Inside("")
	if err != nil {
		return err
	}
	if len(inside.Links) == 0 {
		return errors.New("no link was read")
	}
	if _, unread, err := h.nft.Ruleset(); err != nil || len(unread) == 0 {
		return fmt.Errorf("read firewall rules: %v, %w; want a message that they are not read", unread, err)
	}
	return nil
}
