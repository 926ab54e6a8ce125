package datagram

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/goroutine"
)

// largest fits the largest datagram: 65,507 bytes over IPv4, 65,527 over IPv6.
const largest = 1 << 16

var buffers = sync.Pool{New: func() any { return new([largest]byte) }}

// newSession connects to the server.
func newSession(e *Entry, k key, to *Server) (*session, error) {
	at := to.at.Load()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(*at))
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &session{key: k, entry: e, server: to, conn: conn, raw: raw}
	s.send = func(fd uintptr) bool {
		_, s.failed = unix.Write(int(fd), s.out)
		return true
	}
	return s, nil
}

// forward sends a client's datagram to the server.
func (s *session) forward(b []byte) {
	if !s.server.removed.Load() {
		s.used.Store(time.Now().UnixNano())
	}
	s.out = b
	err := s.raw.Write(s.send)
	s.out = nil
	if err == nil && s.failed == unix.ECONNREFUSED {
		s.refused()
	}
}

// refused ends a session whose server has no socket at the port, so that the client's next
// datagram goes to another one.
func (s *session) refused() {
	s.server.refusing.Store(time.Now().Add(avoided).UnixNano())
	if !s.answered.Load() {
		s.entry.end(s)
	}
}

// answer forwards the server's datagrams until the session ends.
func (s *session) answer() {
	defer goroutine.Recover("forward the datagrams of a server", func() { s.entry.end(s) })
	control := s.local.control()
	var b *[largest]byte
	var n int
	var failed error
	receive := func(fd uintptr) bool {
		b = buffers.Get().(*[largest]byte)
		if n, failed = unix.Read(int(fd), b[:]); failed == unix.EAGAIN {
			buffers.Put(b)
			return false
		}
		return true
	}
	for s.raw.Read(receive) == nil {
		switch failed {
		case nil:
			s.used.Store(time.Now().UnixNano())
			if !s.answered.Load() {
				s.entry.promote(s)
			}
			// What cannot be sent, such as to a forged address, is lost as UDP permits.
			_, _, _ = s.entry.conn.WriteMsgUDPAddrPort(b[:n], control, s.client)
		case unix.ECONNREFUSED:
			s.refused()
		}
		buffers.Put(b)
	}
}
