package h1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairlead/test/place"
)

func TestPoolReusesConnections(t *testing.T) {
	b := newBackend(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	p := newPool(t, b.addr)
	for range 3 {
		if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), ""); err != nil {
			t.Fatal(err)
		}
	}
	want := Counters{Requests: 3, Dialed: 1, Reused: 2, Open: 1, Idle: 1}
	if got := p.Counters(); got != want {
		t.Errorf("counters %+v, want %+v", got, want)
	}
	p.Close()
	if got := p.Counters(); got.Open != 0 || got.Idle != 0 {
		t.Errorf("counters after Close %+v", got)
	}
	if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), ""); err != nil {
		t.Errorf("a request that had chosen the server before Close: %v", err)
	}
	if got := p.Counters(); got.Open != 0 || got.Idle != 0 {
		t.Errorf("counters after that request %+v", got)
	}
}

// Bytes that no request has asked for must not become the response of the next one.
func TestPoolDropsConnectionsWithUnexpectedBytes(t *testing.T) {
	sent := make(chan struct{})
	b := newBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
		_, _ = readRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 1 {
			_, _ = br.Peek(0)
			<-sent
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			sent <- struct{}{}
		}
		_, _ = readRequestHead(br)
	})
	p := newPool(t, b.addr)
	forward := func() string {
		w := httptest.NewRecorder()
		if err := p.Forward(w, httptest.NewRequest("GET", "/", nil), ""); err != nil {
			t.Fatal(err)
		}
		return w.Body.String()
	}
	forward()
	sent <- struct{}{}
	<-sent
	if got := forward(); got != "ok" {
		t.Errorf("second response %q, want ok", got)
	}
	if got := p.Counters(); got.Stale != 1 || got.Dialed != 2 {
		t.Errorf("counters %+v, want a stale connection and two dials", got)
	}
}

// A server closes the idle connection when the next request arrives.
func TestReplay(t *testing.T) {
	cases := []struct {
		method, body string
		replayed     bool
	}{
		{"GET", "", true}, {"PUT", "short", true}, {"DELETE", "", true},
		{"POST", "short", false}, {"POST", "", false}, {"PUT", strings.Repeat("x", maxInline+1), false},
	}
	for _, c := range cases {
		b := newBackend(t, func(conn net.Conn, br *bufio.Reader, n int) {
			for range 2 {
				head, err := readRequestHead(br)
				if err != nil {
					return
				}
				if strings.HasPrefix(head, c.method+" /second") && n == 1 {
					return
				}
				if c.body != "" && strings.HasPrefix(head, c.method+" /second") {
					_, _ = io.CopyN(io.Discard, br, int64(len(c.body)))
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		p := newPool(t, b.addr)
		if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/first", nil), ""); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(c.method, "/second", strings.NewReader(c.body))
		err, _ := p.Forward(httptest.NewRecorder(), r, "").(*Error)
		if c.replayed && (err != nil || p.Counters().Replayed != 1) {
			t.Errorf("%s with %d bytes: error %v, want a replay", c.method, len(c.body), err)
		}
		if !c.replayed && (err == nil || !err.Sent || err.Repeatable(c.method) || p.Counters().Replayed != 0) {
			t.Errorf("%s with %d bytes: error %+v, want no replay", c.method, len(c.body), err)
		}
	}
}

func TestPoolLimits(t *testing.T) {
	release, closed := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = readRequestHead(br)
		<-release
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_, _ = br.ReadByte()
		close(closed)
	})
	p := newPool(t, b.addr)
	p.MaxConns, p.IdleTimeout = 1, time.Nanosecond
	done := make(chan error)
	dialed := make(chan struct{})
	dial := p.Dial
	p.Dial = func(ctx context.Context) (net.Conn, error) {
		defer close(dialed)
		return dial(ctx)
	}
	go func() {
		done <- p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "")
	}()
	<-dialed
	err, _ := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "").(*Error)
	if err == nil || !errors.Is(err, ErrBusy) || err.Status() != 503 || !err.Repeatable("POST") {
		t.Errorf("error %v, want ErrBusy", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-closed
}

func TestDialErrors(t *testing.T) {
	p := newPool(t, "127.0.0.1:1")
	err, _ := p.Forward(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), "").(*Error)
	if err == nil || err.Op != "connect" || err.Sent || !err.Repeatable("POST") || err.Status() != 502 {
		t.Errorf("error %+v, want connect, not sent, status 502", err)
	}
	if got := p.Counters(); got.DialErrors != 1 || got.Open != 0 {
		t.Errorf("counters %+v", got)
	}
}

// TestCloseInterruptsDials closes pools while requests wait for connections. A server that does not answer
// cannot get the request any more, so another server can. One that does answer gets it.
func TestCloseInterruptsDials(t *testing.T) {
	b := newBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = readRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	for _, silent := range []bool{true, false} {
		p := newPool(t, b.addr)
		begun, closed, done := make(chan struct{}), make(chan struct{}), make(chan error)
		dial := p.Dial
		p.Dial = func(ctx context.Context) (net.Conn, error) {
			close(begun)
			if <-closed; silent {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx)
		}
		go func() {
			done <- p.Forward(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("body")), "")
		}()
		<-begun
		p.Close()
		close(closed)
		err := <-done
		var failed *Error
		switch {
		case !silent && err != nil:
			t.Errorf("a server that accepts connections: %v", err)
		case silent && (!errors.As(err, &failed) || !failed.Repeatable("POST") || isTimeout(err) ||
			failed.Status() != 502):
			t.Errorf("a server that does not answer: %+v, want an error after which another server gets it", err)
		}
		if got := p.Counters(); got.Open != 0 {
			t.Errorf("counters %+v", got)
		}
	}
}

// TestStaleConnectionIsFoundLate ends a server's side of a connection after the pool has taken it. The
// server answers nothing that it receives then, so a request would wait without an end.
func TestStaleConnectionIsFoundLate(t *testing.T) {
	b := newBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
		_, _ = readRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 1 {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		_, _ = io.Copy(io.Discard, br)
	})
	p := newPool(t, b.addr)
	u, err := p.get(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if n, writeErr, readErr := u.request([]byte(get)); n != len(get) || writeErr != nil || readErr != nil {
		t.Fatal(n, writeErr, readErr)
	}
	u.consume(u.buffered())
	p.put(u)
	if u, err = p.get(t.Context(), false); err != nil || !u.reused {
		t.Fatal(u, err)
	}
	for began := time.Now(); !closedByPeer(u.probe, true); {
		if time.Since(began) > place.Timeout {
			t.Fatal("the server's end does not arrive")
		}
	}
	if n, err, _ := u.request([]byte(get)); n != 0 || err != errStale {
		t.Errorf("%d bytes were written, error %v", n, err)
	}
}
