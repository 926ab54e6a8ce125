package h1test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// Get is a request.
const Get = "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\n\r\n"

// Backend is a server that runs a script on each connection.
type Backend struct {
	Addr  string
	conns atomic.Int32
}

// NewBackend runs serve on each connection; n counts connections from 1.
func NewBackend(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *Backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{Addr: l.Addr().String()}
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

// ReadRequestHead reads a request's head, as text.
func ReadRequestHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), err
		}
	}
}

// Dialer returns a function that connects to the address.
func Dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}
