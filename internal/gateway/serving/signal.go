package serving

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// kill ends the process at once (SIGKILL). It does not wait for that. It returns nil if the process has ended already.
func (p *process) kill() error {
	err := sendKill(p.pidfd)
	if errors.Is(err, unix.EPERM) {
		err = asUser(User, func() error { return sendKill(p.pidfd) })
	}
	if err == nil || errors.Is(err, unix.ESRCH) || p.hasEnded() {
		return nil
	}
	return fmt.Errorf("end the serving process %d: %w: end it with `kill -9 %d`", p.pid, err, p.pid)
}

// hasEnded reports whether the process has ended. Then pidfd may be closed.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func sendKill(pidfd *os.File) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	return errors.Join(failed, err)
}

// asUser calls f on a thread that has another user. A process may signal those of its own user; CAP_KILL, which the
// daemon's unit does not give, is for those of others. CAP_SETUID, with which the serving process got its user, is
// sufficient for a thread to become that user too.
func asUser(user uintptr, f func() error) error {
	result := make(chan error, 1)
	go onThreadOf(user, f, result)
	return <-result
}

// onThreadOf locks one thread and never unlocks it, so that the thread ends with the goroutine. The first thread of
// a process cannot end, and keeps its user.
func onThreadOf(user uintptr, f func() error, result chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		done := make(chan error, 1)
		go onThreadOf(user, f, done)
		result <- <-done
		return
	}
	// Not syscall.Setresuid, which changes all threads.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
		result <- fmt.Errorf("become user %d: %w", user, errno)
		return
	}
	result <- f()
}
