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
	"testing"

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

func newPool(t *testing.T, addr string) *forward.Pool {
	p := &forward.Pool{Dial: h1test.Dialer(addr)}
	t.Cleanup(p.Close)
	return p
}

// answers sends the same response to each request without a body.
func answers(response string) func(net.Conn, *bufio.Reader, int) {
	return func(c net.Conn, br *bufio.Reader, _ int) {
		for {
			if _, err := h1test.ReadRequestHead(br); err != nil {
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
	pool   *forward.Pool
	errors chan *wire.Error
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f.pool.Forward(w, r, "")
	var e *wire.Error
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
func gateway(t *testing.T, front string, b *h1test.Backend) (addr string, f *forwarder) {
	f = &forwarder{pool: newPool(t, b.Addr), errors: make(chan *wire.Error, 10)}
	return fronts[front](t, f), f
}

// onFronts runs a test with each front.
func onFronts(t *testing.T, test func(t *testing.T, front string)) {
	for name := range fronts {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) { test(t, name) })
	}
}

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
