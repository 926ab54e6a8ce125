package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead/test/place"
)

// backend is a server that runs a script on each connection.
type backend struct {
	addr  string
	conns atomic.Int32
}

// newBackend runs serve on each connection; n counts connections from 1.
func newBackend(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{addr: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n := int(b.conns.Add(1))
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c), n)
			}()
		}
	}()
	return b
}

func newPool(t *testing.T, addr string) *Pool {
	p := &Pool{Dial: dialer(addr)}
	t.Cleanup(p.Close)
	return p
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// readHead reads a request's head, as text.
func readRequestHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

// answers sends the same response to each request without a body.
func answers(response string) func(net.Conn, *bufio.Reader, int) {
	return func(c net.Conn, br *bufio.Reader, _ int) {
		for {
			if _, err := readRequestHead(br); err != nil {
				return
			}
			if _, err := io.WriteString(c, response); err != nil {
				return
			}
			if !strings.Contains(response, "Content-Length") && !strings.Contains(response, "chunked") {
				return
			}
		}
	}
}

// forwarder forwards to the pool, and records errors.
type forwarder struct {
	pool   *Pool
	errors chan *Error
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f.pool.Forward(w, r, "")
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	f.errors <- e
	if e.Started {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(e.Status())
}

// fronts are the servers in front of a pool.
var fronts = map[string]func(t *testing.T, h http.Handler) string{
	"net/http": func(t *testing.T, h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	},
	"h1": func(t *testing.T, h http.Handler) string { return newServer(t, &Server{Handler: h}) },
}

// newServer starts a server and returns its address.
func newServer(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), place.Timeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shut down: %v", err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("Serve returned %v", err)
		}
	})
	return l.Addr().String()
}

// gateway starts a front before a backend.
func gateway(t *testing.T, front string, b *backend) (addr string, f *forwarder) {
	f = &forwarder{pool: newPool(t, b.addr), errors: make(chan *Error, 10)}
	return fronts[front](t, f), f
}

// onFronts runs a test with each front.
func onFronts(t *testing.T, test func(t *testing.T, front string)) {
	for name := range fronts {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) { test(t, name) })
	}
}

const get = "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\n\r\n"

// text is a body that is longer than all buffers.
var text = bytes.Repeat([]byte("0123456789abcdef"), 40<<10)

func chunkedText(p []byte, size int) string {
	var out strings.Builder
	for len(p) > 0 {
		n := min(size, len(p))
		fmt.Fprintf(&out, "%x\r\n%s\r\n", n, p[:n])
		p = p[n:]
	}
	return out.String() + "0\r\n\r\n"
}

// scripted is a connection that returns what r returns.
type scripted struct {
	net.Conn
	r io.Reader
}

func (s *scripted) Read(p []byte) (int, error) { return s.r.Read(p) }
