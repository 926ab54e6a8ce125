package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WhenEnded calls fn when the process has ended, unless ctx ends first. It needs no
// thread: the Go runtime's poller waits for the pidfd.
func WhenEnded(ctx context.Context, pid int, fn func()) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		go fn()
		return nil
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	process := os.NewFile(uintptr(fd), fmt.Sprint("process ", pid))
	raw, err := process.SyscallConn()
	if err != nil {
		return errors.Join(fmt.Errorf("watch process %d: %w", pid, err), process.Close())
	}
	context.AfterFunc(ctx, func() { process.Close() })
	go func() {
		if raw.Read(func(fd uintptr) bool { return exited(int(fd)) }) == nil {
			fn()
		}
	}()
	return nil
}

// exited reports whether a process has ended: then its pidfd is readable.
func exited(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}
