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
	var got int
	var failed error
	err := p.raw.Read(func(fd uintptr) bool {
		got, failed = recvPeek(int(fd), p.buf)
		over := failed == nil && got < n && (got == 0 || ended(int(fd)))
		if over {
			// Bytes may have come between the two calls. None come from now on.
			if got, failed = recvPeek(int(fd), p.buf); failed == nil && got < n {
				failed = io.EOF
			}
		}
		if failed == unix.EAGAIN {
			failed = nil
			return false
		}
		return over || failed != nil || got >= n
	})
	if err == nil {
		err = failed
	}
	return p.buf[:got], err
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
