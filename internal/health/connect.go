package health

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connect makes a TCP connection and ends it with a reset: what most checks do,
// thousands of times a second. A server on this host has mostly answered before
// the first connect(2) returns, and the second tells; only where it has not is
// the runtime's poller asked.
func connect(ctx context.Context, to netip.AddrPort) error {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	// Closed in haste, the socket sends a reset, and is forgotten.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return errors.Join(os.NewSyscallError("setsockopt", err), unix.Close(fd))
	}
	if done, err := connected(fd, addr); done {
		return errors.Join(err, unix.Close(fd))
	}
	if done, err := connected(fd, addr); done {
		return errors.Join(err, unix.Close(fd))
	}
	return wait(ctx, fd, addr)
}

// connected starts a connection or asks what has become of it, and reports
// whether that is known.
func connected(fd int, addr unix.Sockaddr) (bool, error) {
	switch err := unix.Connect(fd, addr); {
	case err == nil, errors.Is(err, unix.EISCONN):
		return true, nil
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY), errors.Is(err, unix.EINTR):
		return false, nil
	default:
		return true, os.NewSyscallError("connect", err)
	}
}

// wait waits until the connection is made, or ctx ends, and closes it.
func wait(ctx context.Context, fd int, addr unix.Sockaddr) (err error) {
	file := os.NewFile(uintptr(fd), "check")
	defer func() { err = errors.Join(err, file.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var cause error
	err = raw.Write(func(fd uintptr) bool {
		var done bool
		done, cause = connected(int(fd), addr)
		return done
	})
	return errors.Join(cause, err)
}
