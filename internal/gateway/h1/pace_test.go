package h1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

// A slow client that goes on is not interrupted, however long one read or write lasts; a client that
// stops is.
func TestTimeLimitsAreForSilence(t *testing.T) {
	const limit, steps = 10 * time.Second, 100
	s := &Server{ReadTimeout: limit, WriteTimeout: limit}
	s.setClock()
	server, client := h1test.TCPPair(t)
	c := newConn(s, server)
	for _, kind := range []struct {
		name     string
		begin    func()
		from, to net.Conn
	}{
		{"body", func() { c.enter(phaseBody) }, client, server},
		{"response", func() { c.reading.Store(0); c.writing.Store(s.now.Load()) }, server, client},
	} {
		kind.begin()
		for range steps {
			if _, err := kind.from.Write([]byte("x")); err != nil {
				t.Fatalf("%s: %v", kind.name, err)
			}
			if _, err := io.ReadFull(kind.to, make([]byte, 1)); err != nil {
				t.Fatalf("%s: %v", kind.name, err)
			}
			for wire.Unsent(c.socket) || wire.Unsent(wire.RawOf(client)) {
				time.Sleep(time.Millisecond)
			}
			s.now.Add(int64(limit / time.Second))
			c.inspect()
		}
	}
	// The client reads no more, and sends nothing.
	for !wire.Unsent(c.socket) { // the deadline may pass before the first byte
		var err error
		_ = server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for err == nil {
			_, err = server.Write(text)
		}
	}
	_ = server.SetWriteDeadline(time.Time{})
	c.enter(phaseBody)
	c.writing.Store(s.now.Load())
	for _, seconds := range []int64{1, int64(limit/time.Second) + 1} {
		s.now.Add(seconds)
		c.inspect()
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a body without progress: read returned %v, want a timeout", err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a response without progress: write returned %v, want a timeout", err)
	}
}

// A client that is silent after a part of a body is interrupted, also if the end of a chunk is buffered still.
func TestSilenceWithinABody(t *testing.T) {
	for name, sent := range map[string]string{
		"length":         "Content-Length: 9\r\n\r\nfirst",
		"chunk":          "Transfer-Encoding: chunked\r\n\r\n9\r\nfirst",
		"between chunks": "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
		"line of chunk":  "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n5",
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			handler := func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				ended <- err
			}
			s := &Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(handler)}
			s.setClock()
			server, client := h1test.TCPPair(t)
			c := newConn(s, server)
			go c.serve()
			if _, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+sent); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(place.Timeout); ; runtime.Gosched() {
				select {
				case err := <-ended:
					if !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the body ended with %v, want a timeout", err)
					}
					return
				default:
				}
				if time.Now().After(deadline) {
					t.Fatal("the client keeps its connection")
				}
				s.now.Add(61)
				c.inspect()
			}
		})
	}
}

func TestTLSConnectionsWaitWithASmallBuffer(t *testing.T) {
	server, client := h1test.TCPPair(t)
	c := newConn(&Server{}, tls.Server(server, &tls.Config{}))
	waited := 0
	c.Wait = func() {
		waited = len(c.Buf)
		client.Close()
	}
	if err := c.readRequest(0); err == nil || waited != wire.SmallSize {
		t.Errorf("error %v with a buffer of %d bytes, want %d", err, waited, wire.SmallSize)
	}
}
