package h1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"fairlead/test/place"
)

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (a, b *net.TCPConn) {
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

// A slow client that goes on is not interrupted, however long one read or write lasts; a client that
// stops is.
func TestTimeLimitsAreForSilence(t *testing.T) {
	const limit, steps = 10 * time.Second, 100
	s := &Server{ReadTimeout: limit, WriteTimeout: limit}
	s.setClock()
	server, client := tcpPair(t)
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
			for unsent(c.socket) || unsent(rawOf(client)) {
				time.Sleep(time.Millisecond)
			}
			s.now.Add(int64(limit / time.Second))
			c.inspect()
		}
	}
	// The client reads no more, and sends nothing.
	for !unsent(c.socket) { // the deadline may pass before the first byte
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
			server, client := tcpPair(t)
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

// A connection that waits holds no large buffer, whatever it has received.
func TestBuffersOfWaitingConnections(t *testing.T) {
	for name, parts := range map[string][]int{"nothing": {0}, "part of a head": {100}, "drip": {1, 1, 1},
		"long head": {smallSize, 100}} {
		server, client := tcpPair(t)
		var in input
		in.init(server)
		var sizes []int
		next := 0
		in.wait = func() {
			sizes = append(sizes, len(in.buf))
			if next < len(parts) {
				_, _ = client.Write(make([]byte, parts[next]))
				next++
			}
			if next == len(parts) {
				_ = client.CloseWrite()
			}
		}
		for in.fill() == nil {
		}
		held, total := slices.Max(sizes), 0
		for _, n := range parts {
			total += n
		}
		if held > smallSize+4*total {
			t.Errorf("%s: the buffer has %d bytes after %d received", name, held, total)
		}
		in.release()
	}
}

func TestTLSConnectionsWaitWithASmallBuffer(t *testing.T) {
	server, client := tcpPair(t)
	c := newConn(&Server{}, tls.Server(server, &tls.Config{}))
	waited := 0
	c.wait = func() {
		waited = len(c.buf)
		client.Close()
	}
	if err := c.readRequest(0); err == nil || waited != smallSize {
		t.Errorf("error %v with a buffer of %d bytes, want %d", err, waited, smallSize)
	}
}
