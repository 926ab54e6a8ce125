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

// probe makes a TCP connection and ends it with a reset. Most checks do this,
// thousands of times per second. A server on this host has usually answered before
// the first connect(2) returns, and a second connect(2) confirms it. Only if it
// has not, probe uses the runtime's poller.
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

// connect makes a TCP connection that ends with a reset. It needs a few system
// calls, where the net package needs a dozen and a goroutine.
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

// RemoteAddr implements net.Conn.
func (c connection) RemoteAddr() net.Addr { return c.to }

// LocalAddr implements net.Conn. The package does not use it.
func (c connection) LocalAddr() net.Addr { return &net.TCPAddr{} }

// socket is a socket that connects; done is true if it is connected.
type socket struct {
	fd   int
	to   unix.Sockaddr
	done bool
}

// begin starts a non-blocking connection.
func begin(to netip.AddrPort) (socket, error) {
	s := socket{to: &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}}
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family, s.to = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	var err error
	if s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		unix.IPPROTO_TCP); err != nil {
		return s, os.NewSyscallError("socket", err)
	}
	// With a linger time of 0, close sends a reset and leaves no TIME_WAIT.
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

// connected starts the connection or checks its progress, and reports whether it
// is established.
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

// wait waits until the connection is established, or ctx ends. file is the socket.
func (s socket) wait(ctx context.Context, file *os.File) error {
	stop := context.AfterFunc(ctx, func() {
		_ = file.SetWriteDeadline(time.Unix(1,
			0))
	}) // cannot fail: the file is pollable
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
		// The answer may have arrived while this process had no CPU time.
		if done, timedOut := s.connected(); done || timedOut != nil {
			return timedOut
		}
	}
	return errors.Join(cause, err)
}
