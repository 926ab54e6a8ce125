package load

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for events of many descriptors on one thread (epoll(7)). Its system
// calls are raw for the reason in raw.go.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { unix.Close(p.fd) }

// set adds or changes the events of a descriptor; op is EPOLL_CTL_ADD or _MOD. A
// closed descriptor is removed by the kernel.
func (p *poller) set(op, fd int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("wait for descriptor %d: %w", fd, errno)
	}
	return nil
}

// wait returns the events that have come, or none after the duration or a signal.
func (p *poller) wait(d time.Duration) []unix.EpollEvent {
	if d < tick {
		p.sleep(d)
		d = 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(d.Milliseconds()), 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// sleep waits until an event comes, at most for the duration. It is more precise
// than epoll_wait(2), which counts in milliseconds.
func (p *poller) sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	fds := unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN}
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}
