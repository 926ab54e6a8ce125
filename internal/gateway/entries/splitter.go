package entries

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1"
	"fairlead/internal/gateway/h2"
	"fairlead/internal/gateway/opening"
	"fairlead/internal/gateway/tlsconfig"
)

// splitter divides the connections of a listener by what the client begins with: an
// entry point may have routers with and without TLS, and clients of HTTP/1.1 and HTTP/2.
// Its own listener accepts the connections of HTTP/2.
type splitter struct {
	*accepting
	config *tls.Config
	// patience is how long a client may take for its first bytes and a handshake.
	patience time.Duration
	limits   *admission.Limits
	// proxied reads the PROXY header of a trusted peer.
	proxied func(net.Conn) (net.Conn, error)
	// stream serves a connection if a TCP router takes it, and calls heard then.
	stream func(c net.Conn, heard func()) bool
	// http1 serves a connection of HTTP/1.1. It calls heard when the first head is complete, and ended at the
	// end, perhaps after it has returned.
	http1 func(c net.Conn, heard, ended func())
	http2 chan net.Conn
	ended chan struct{}
	once  sync.Once
	err   error
}

// start begins to accept the connections of the listener.
func (s *splitter) start() {
	s.http2, s.ended = make(chan net.Conn), make(chan struct{})
	goroutine.Go("accept connections", func() { s.end(h1.Accept(s.accepting, s.split)) })
}

// split serves a connection if there are not too many, or gives it to the server of
// HTTP/2. Who accepts one of HTTP/2 removes it from the limits at its end.
func (s *splitter) split(c net.Conn) {
	c, a := s.count(c)
	if a == nil {
		c.Close()
		s.open.add(-1)
		return
	}
	s.serve(c, a)
}

// count reads the PROXY header of a trusted peer and counts the connection. It returns the
// connection with the address of the client, and nil if it must be closed.
func (s *splitter) count(c net.Conn) (to net.Conn, a *admission.Place) {
	closes := func() { _ = c.Close() }
	if a = s.limits.Enter(c, closes); a == nil {
		return c, nil
	}
	entered := a
	defer goroutine.Recover("read a PROXY header", func() {
		to, a = c, nil
		entered.Leave()
	})
	_ = c.SetDeadline(time.Now().Add(s.patience)) // fails only with the connection
	claimed, err := s.proxied(c)
	if claimed == c && err == nil {
		return c, a
	}
	if a.Leave(); err != nil {
		return claimed, nil
	}
	return claimed, s.limits.Enter(claimed, closes)
}

// serve waits for the client's first bytes. At the end of the connection, it leaves the limits, unless
// the server of HTTP/2 has it.
func (s *splitter) serve(c net.Conn, a *admission.Place) {
	ended := func() {
		a.Leave()
		s.open.add(-1)
	}
	c, two := s.take(c, a)
	if c == nil {
		ended()
		return
	}
	_ = c.SetDeadline(time.Time{})
	if !two {
		s.http1(c, a.Heard, ended)
		return
	}
	select {
	case s.http2 <- &admitted{h2.New(c, a.Heard), a}:
	case <-s.ended:
		c.Close()
		ended()
	}
}

// admitted is a connection of HTTP/2 with its place in the limits.
type admitted struct {
	*h2.Conn
	place *admission.Place
}

// take offers the connection to the TCP routers, and then begins HTTP. It returns nil if the connection has
// ended, also by a mistake.
func (s *splitter) take(c net.Conn, a *admission.Place) (to net.Conn, two bool) {
	defer goroutine.Recover("serve the begin of a connection", func() { _ = c.Close() })
	if s.stream(c, a.Heard) {
		return nil, false
	}
	return s.begin(c)
}

// begin terminates TLS if the client begins with it, and returns whether the client speaks
// HTTP/2. It returns nil if it has closed the connection.
func (s *splitter) begin(c net.Conn) (net.Conn, bool) {
	kind, err := opening.PeekKind(c)
	if err != nil {
		c.Close()
		return nil, false
	}
	if kind != opening.TLS {
		return c, kind == opening.HTTP2
	}
	secure := tls.Server(c, s.config)
	if err := secure.Handshake(); err != nil {
		secure.Close()
		return nil, false
	}
	protocol := secure.ConnectionState().NegotiatedProtocol
	if protocol == tlsconfig.ChallengeProtocol {
		secure.Close() // the handshake is the whole answer (RFC 8737, 3)
		return nil, false
	}
	return secure, protocol == "h2"
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
