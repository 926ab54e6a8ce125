package gateway

import (
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// splitter is a listener whose connections use TLS if the client begins with a
// handshake: an entry point may have routers with and without TLS.
type splitter struct {
	net.Listener
	config *tls.Config
	// patience is how long a client may be silent before its first byte.
	patience time.Duration
	conns    chan net.Conn
	ended    chan struct{}
	once     sync.Once
	err      error
}

// newSplitter begins to accept the connections of the listener.
func newSplitter(l net.Listener, config *tls.Config, patience time.Duration) *splitter {
	s := &splitter{Listener: l, config: config, patience: patience, conns: make(chan net.Conn),
		ended: make(chan struct{})}
	go s.accept()
	return s
}

func (s *splitter) accept() {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			if wait, ok := err.(interface{ Temporary() bool }); ok && wait.Temporary() {
				time.Sleep(5 * time.Millisecond) // out of descriptors, as in net/http
				continue
			}
			s.err = err
			s.end()
			return
		}
		go s.split(c)
	}
}

// handshake is the type of the TLS record that begins a handshake (RFC 8446 5.1).
const handshake = 0x16

// split waits for the client's first byte.
func (s *splitter) split(c net.Conn) {
	p := &peeked{Conn: c}
	_ = c.SetReadDeadline(time.Now().Add(s.patience)) // fails only with the connection
	if _, err := c.Read(p.first[:]); err != nil {
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	p.left = true
	var conn net.Conn = p
	if p.first[0] == handshake {
		conn = tls.Server(p, s.config)
	}
	select {
	case s.conns <- conn:
	case <-s.ended:
		c.Close()
	}
}

// Accept implements net.Listener.
func (s *splitter) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.ended:
		return nil, s.err
	}
}

// Close implements net.Listener.
func (s *splitter) Close() error {
	err := s.Listener.Close()
	s.end()
	return err
}

func (s *splitter) end() {
	s.once.Do(func() {
		if s.err == nil {
			s.err = net.ErrClosed
		}
		close(s.ended)
	})
}

// peeked is a connection whose first byte has been read.
type peeked struct {
	net.Conn
	first [1]byte
	left  bool
}

// Read implements net.Conn.
func (p *peeked) Read(b []byte) (int, error) {
	if !p.left || len(b) == 0 {
		return p.Conn.Read(b)
	}
	p.left = false
	b[0] = p.first[0]
	return 1, nil
}
