// Package h1test has connections and servers for tests of HTTP/1.1.
package h1test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Faulty is a connection with a mistake: one of its methods panics.
type Faulty struct {
	net.Conn
	Method string
	after  atomic.Int32 // so many calls succeed before
}

func (f *Faulty) call(method string) {
	if method == f.Method && f.after.Add(-1) < 0 {
		panic("a mistake in " + method)
	}
}

// Read implements net.Conn.
func (f *Faulty) Read(p []byte) (int, error) {
	f.call("Read")
	return f.Conn.Read(p)
}

// Write implements net.Conn.
func (f *Faulty) Write(p []byte) (int, error) {
	f.call("Write")
	return f.Conn.Write(p)
}

// RemoteAddr implements net.Conn.
func (f *Faulty) RemoteAddr() net.Addr {
	f.call("RemoteAddr")
	return f.Conn.RemoteAddr()
}

// SetReadDeadline implements net.Conn.
func (f *Faulty) SetReadDeadline(t time.Time) error {
	f.call("SetReadDeadline")
	return f.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (f *Faulty) SetDeadline(t time.Time) error {
	f.call("SetDeadline")
	return f.Conn.SetDeadline(t)
}

// Faults makes each second connection of a listener faulty.
type Faults struct {
	net.Listener
	Method string
	After  int32
	n      int
}

// Accept implements net.Listener.
func (f *Faults) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if f.n++; err != nil || f.n%2 == 1 {
		return c, err
	}
	bad := &Faulty{Conn: c, Method: f.Method}
	bad.after.Store(f.After)
	return bad, nil
}

// Scripted is a connection that returns what r returns.
type Scripted struct {
	net.Conn
	R io.Reader
}

// Read implements net.Conn.
func (s *Scripted) Read(p []byte) (int, error) { return s.R.Read(p) }

// TCPPair returns both ends of a connection.
func TCPPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return server.(*net.TCPConn), client.(*net.TCPConn)
}
