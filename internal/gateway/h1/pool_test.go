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

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
)

func TestPoolReusesConnections(t *testing.T) {
	b := h1test.NewBackend(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	p := newPool(t, b.Addr)
	for range 3 {
		if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), ""); err != nil {
			t.Fatal(err)
		}
	}
	want := forward.Counters{Requests: 3, Dialed: 1, Reused: 2, Open: 1, Idle: 1}
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
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
		_, _ = h1test.ReadRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 1 {
			_, _ = br.Peek(0)
			<-sent
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
			sent <- struct{}{}
		}
		_, _ = h1test.ReadRequestHead(br)
	})
	p := newPool(t, b.Addr)
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
		{"POST", "short", false}, {"POST", "", false}, {"PUT", strings.Repeat("x", forward.MaxInline+1), false},
	}
	for _, c := range cases {
		b := h1test.NewBackend(t, func(conn net.Conn, br *bufio.Reader, n int) {
			for range 2 {
				head, err := h1test.ReadRequestHead(br)
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
		p := newPool(t, b.Addr)
		if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/first", nil), ""); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(c.method, "/second", strings.NewReader(c.body))
		err, _ := p.Forward(httptest.NewRecorder(), r, "").(*wire.Error)
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
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = h1test.ReadRequestHead(br)
		<-release
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_, _ = br.ReadByte()
		close(closed)
	})
	p := newPool(t, b.Addr)
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
	err, _ := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), "").(*wire.Error)
	if err == nil || !errors.Is(err, wire.ErrBusy) || err.Status() != 503 || !err.Repeatable("POST") {
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
	err, _ := p.Forward(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), "").(*wire.Error)
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
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
		_, _ = h1test.ReadRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	for _, silent := range []bool{true, false} {
		p := newPool(t, b.Addr)
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
		var failed *wire.Error
		switch {
		case !silent && err != nil:
			t.Errorf("a server that accepts connections: %v", err)
		case silent && (!errors.As(err, &failed) || !failed.Repeatable("POST") || wire.IsTimeout(err) ||
			failed.Status() != 502):
			t.Errorf("a server that does not answer: %+v, want an error after which another server gets it", err)
		}
		if got := p.Counters(); got.Open != 0 {
			t.Errorf("counters %+v", got)
		}
	}
}
