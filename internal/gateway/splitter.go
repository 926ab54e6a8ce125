package gateway

import (
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/gateway/h1"
	"fairlead/internal/gateway/h2"

	"golang.org/x/sys/unix"
)

// splitter divides the connections of a listener by what the client begins with: an
// entry point may have routers with and without TLS, and clients of HTTP/1.1 and HTTP/2.
// Its own listener accepts the connections of HTTP/2.
type splitter struct {
	*accepting
	config *tls.Config
	// patience is how long a client may take for its first bytes and a handshake.
	patience time.Duration
	limits   *limits
	// http1 serves a connection of HTTP/1.1.
	http1 func(net.Conn)
	http2 chan net.Conn
	ended chan struct{}
	once  sync.Once
	err   error
}

// newSplitter begins to accept the connections of the listener. Who accepts one of HTTP/2
// removes it from the limits at its end.
func newSplitter(l *accepting, config *tls.Config, patience time.Duration, limits *limits,
	http1 func(net.Conn)) *splitter {
	s := &splitter{accepting: l, config: config, patience: patience, limits: limits, http1: http1,
		http2: make(chan net.Conn), ended: make(chan struct{})}
	go func() { s.end(h1.Accept(l, s.split)) }()
	return s
}

// split serves a connection if there are not too many, or gives it to the server of
// HTTP/2.
func (s *splitter) split(c net.Conn) {
	switch {
	case !s.limits.enter(c):
		c.Close()
	case s.serve(c):
		return
	default:
		s.limits.leave(c)
	}
	s.open.add(-1)
}

// serve waits for the client's first bytes. It returns whether the server of HTTP/2 has the
// connection.
func (s *splitter) serve(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(s.patience)) // fails only with the connection
	kind, err := begins(c)
	if err != nil {
		c.Close()
		return false
	}
	two := kind == beginsHTTP2
	if kind == beginsTLS {
		secure := tls.Server(c, s.config)
		if err := secure.Handshake(); err != nil {
			secure.Close()
			return false
		}
		two = secure.ConnectionState().NegotiatedProtocol == "h2"
		c = secure
	}
	_ = c.SetDeadline(time.Time{})
	if !two {
		s.http1(c)
		return false
	}
	select {
	case s.http2 <- h2.New(c):
		return true
	case <-s.ended:
		c.Close()
		return false
	}
}

// Accept implements net.Listener.
func (s *splitter) Accept() (net.Conn, error) {
	select {
	case c := <-s.http2:
		return c, nil
	case <-s.ended:
		return nil, s.err
	}
}

// Close implements net.Listener.
func (s *splitter) Close() error {
	err := s.accepting.Close()
	s.end(net.ErrClosed)
	return err
}

// end makes Accept return the error.
func (s *splitter) end(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.ended)
	})
}

// What a client begins with.
type beginning int

const (
	beginsHTTP1 beginning = iota
	beginsHTTP2
	beginsTLS
)

// begins looks at the first bytes of a connection without reading them, so that the
// connection stays one of package net, whose bodies the kernel can move.
func begins(c net.Conn) (beginning, error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [3]byte
	n := 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if failed == unix.EAGAIN || failed == unix.EINTR {
			return false
		}
		return failed != nil || n == 0 || n == len(first) || first[0] != 'P'
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, net.ErrClosed
	case first[0] == 0x16: // the record type of a handshake (RFC 8446 5.1)
		return beginsTLS, nil
	case string(first[:]) == "PRI": // the preface of HTTP/2 (RFC 9113 3.4)
		return beginsHTTP2, nil
	}
	return beginsHTTP1, nil
}
