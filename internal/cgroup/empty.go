package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// WaitEmpty waits until neither the cgroup nor its child cgroups have processes. A thread counts until it has
// ended, also after its process was moved to another cgroup. Returns an error if there still are processes after
// the limit.
func WaitEmpty(path string, limit time.Duration) error {
	events, err := os.Open(filepath.Join(path, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	return AwaitEmpty(events, limit)
}

// AwaitEmpty is WaitEmpty for the cgroup's open file cgroup.events, which the kernel marks as changed when the last
// process has ended.
func AwaitEmpty(events *os.File, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		if busy, err := Busy(events); err != nil || !busy {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("it still has processes after %s", limit)
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait until it is empty: %w", err)
		}
	}
}

// Busy reports whether a cgroup or its child cgroups have processes, by its open file cgroup.events. To read it
// makes poll(2) wait for the next change.
func Busy(events *os.File) (bool, error) {
	text := make([]byte, 256)
	n, err := events.ReadAt(text, 0)
	if n == 0 && err != nil {
		return false, fmt.Errorf("read cgroup.events: %w", err)
	}
	return strings.Contains(string(text[:n]), "populated 1"), nil
}
