package opening

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// peeker looks at the bytes that a connection has received.
type peeker struct {
	raw syscall.RawConn
	buf []byte
	// n is the number of bytes in buf.
	n int
}

func newPeeker(c net.Conn, room int) (*peeker, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("peek at a connection: it is none of package net")
	}
	raw, err := s.SyscallConn()
	return &peeker{raw: raw, buf: make([]byte, room)}, err
}

// atLeast waits until the first n bytes are there, and returns those and what follows, as far
// as they are in the buffer. It returns io.EOF if the client sends no more.
func (p *peeker) atLeast(n int) ([]byte, error) {
	if n > len(p.buf) {
		p.buf = make([]byte, max(n, 2*len(p.buf)))
	}
	var failed error
	err := p.raw.Read(func(fd uintptr) bool {
		had := p.n
		p.n, failed = recvPeek(int(fd), p.buf)
		switch {
		case failed == unix.EAGAIN:
			p.n, failed = 0, nil
			return false
		case failed != nil || p.n >= n:
			return true
		case p.n == 0 || p.n == had && ended(int(fd)):
			failed = io.EOF
			return true
		}
		return false
	})
	if err == nil {
		err = failed
	}
	return p.buf[:p.n], err
}

func recvPeek(fd int, b []byte) (n int, err error) {
	for {
		n, _, err = unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// ended reports whether the peer has closed its side. A read cannot show that while there
// are bytes.
func ended(fd int) bool {
	const tcpClose, tcpCloseWait = 7, 8 // include/net/tcp_states.h of the kernel
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || info.State == tcpClose || info.State == tcpCloseWait
}
