package nonblock

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Poll is an epoll set of sockets that waits in the runtime's poller, without a thread.
type Poll struct {
	file *os.File
	raw  syscall.RawConn
}

// NewPoll returns an empty set.
func NewPoll(name string) (*Poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the runtime's poller
		unix.Close(fd)
		return nil, err
	}
	p := &Poll{file: os.NewFile(uintptr(fd), name)}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		_ = p.file.Close()
		return nil, err
	}
	return p, nil
}

// Add adds a descriptor that becomes readable. options are further ones of epoll_ctl(2).
func (p *Poll) Add(fd int32, options uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | options, Fd: fd})
}

// Remove removes a descriptor. It does nothing if the set does not have it.
func (p *Poll) Remove(fd int32) { _ = p.control(unix.EPOLL_CTL_DEL, fd, nil) }

func (p *Poll) control(op int, fd int32, e *unix.EpollEvent) (failed error) {
	err := p.raw.Control(func(poll uintptr) { failed = unix.EpollCtl(int(poll), op, int(fd), e) })
	if err == nil {
		err = failed
	}
	return err
}

// Wait calls try, which uses Events, and again after each change until it returns true. It returns an error after
// Close. Close waits for try, so try must not take a lock that its caller holds.
func (p *Poll) Wait(try func(poll uintptr) bool) error { return p.raw.Read(try) }

// Close closes the set.
func (p *Poll) Close() error { return p.file.Close() }

// Events reads the events of the set in Wait, and returns their number.
func Events(poll uintptr, events []unix.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, poll, uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
