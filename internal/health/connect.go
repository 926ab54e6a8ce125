package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probe makes a TCP connection and ends it with a reset: what most checks do,
// thousands of times a second. A server on this host has mostly answered before
// the first connect(2) returns, and the second tells; only where it has not is
// the runtime's poller asked.
func probe(ctx context.Context, to netip.AddrPort) error {
	s, err := begin(to)
	if err != nil {
		return err
	}
	if s.done {
		return unix.Close(s.fd)
	}
	file := os.NewFile(uintptr(s.fd), "tcp")
	return errors.Join(s.wait(ctx, file), file.Close())
}

// connect makes a TCP connection, which ends with a reset. It does in a few
// system calls what the net package takes a dozen and a goroutine for.
func connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	s, err := begin(to)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(s.fd), "tcp")
	if !s.done {
		if err := s.wait(ctx, file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return connection{file, net.TCPAddrFromAddrPort(to)}, nil
}

// connection is a connected socket.
type connection struct {
	*os.File
	to net.Addr
}

// RemoteAddr is net.Conn's.
func (c connection) RemoteAddr() net.Addr { return c.to }

// LocalAddr is net.Conn's; nobody asks for it.
func (c connection) LocalAddr() net.Addr { return &net.TCPAddr{} }

// socket is one that connects, or is done with it.
type socket struct {
	fd   int
	to   unix.Sockaddr
	done bool
}

// begin begins to connect.
func begin(to netip.AddrPort) (socket, error) {
	s := socket{to: &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}}
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family, s.to = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	var err error
	if s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err != nil {
		return s, os.NewSyscallError("socket", err)
	}
	// Closed without lingering, it sends a reset and is forgotten.
	if err = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return s, errors.Join(os.NewSyscallError("setsockopt", err), unix.Close(s.fd))
	}
	for range 2 {
		if s.done, err = s.connected(); err != nil {
			return s, errors.Join(err, unix.Close(s.fd))
		}
		if s.done {
			break
		}
	}
	return s, nil
}

// connected begins a connection or asks what has become of it, and reports
// whether it is made.
func (s socket) connected() (bool, error) {
	switch err := unix.Connect(s.fd, s.to); {
	case err == nil, errors.Is(err, unix.EISCONN):
		return true, nil
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY), errors.Is(err, unix.EINTR):
		return false, nil
	default:
		return false, os.NewSyscallError("connect", err)
	}
}

// wait waits until the connection is made, or ctx ends. The file is the
// socket's.
func (s socket) wait(ctx context.Context, file *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) }) // it can be waited for
	defer stop()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var cause error
	err = raw.Write(func(uintptr) bool {
		var done bool
		done, cause = s.connected()
		return done || cause != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// The answer may have come while this process had no CPU to see it.
		if done, timedOut := s.connected(); done || timedOut != nil {
			return timedOut
		}
	}
	return errors.Join(cause, err)
}
