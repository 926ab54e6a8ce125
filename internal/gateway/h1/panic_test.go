package h1

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
)

// TestPanicsEndOneConnection lets connections panic where the server uses them: they end, and the others
// are served.
func TestPanicsEndOneConnection(t *testing.T) {
	pool := newPool(t, h1test.NewBackend(t, echo).Addr)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("a mistake in a handler")
		case "/after":
			goroutine.OnDone(r.Context(), "try", func() { panic("a mistake in a hook") })
			return
		}
		if err := pool.Forward(w, r, ""); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	chunk := "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
	for name, test := range map[string]struct {
		method, request string
		after           int32
	}{
		"begin":          {"RemoteAddr", h1test.Get, 0},
		"head":           {"Read", h1test.Get, 0},
		"next head":      {"Read", h1test.Get, 1},
		"body":           {"Read", chunk, 1},
		"response":       {"Write", h1test.Get, 0},
		"early response": {"Write", chunk, 0},
		"handler":        {"", strings.Replace(h1test.Get, "/a", "/panic", 1), 0},
		"hook":           {"", strings.Replace(h1test.Get, "/a", "/after", 1) + "GARBAGE\r\n\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var ended sync.WaitGroup
			s := &Server{Handler: handler}
			all := &h1test.Faults{Listener: l, Method: test.method, After: test.after}
			go Accept(all, func(c net.Conn) { s.ServeConn(c, func() {}, ended.Done) })
			defer l.Close()
			good, in := dialFront(t, l.Addr().String())
			ended.Add(2)
			_, _ = io.WriteString(good, h1test.Get)
			expect(t, in, "")
			bad, rest := dialFront(t, l.Addr().String())
			_, _ = io.WriteString(bad, test.request)
			if _, err := io.Copy(io.Discard, rest); wire.IsTimeout(err) {
				t.Error("the faulty connection does not end")
			}
			_, _ = io.WriteString(good, h1test.Get)
			expect(t, in, "")
			_ = good.Close()
			ended.Wait()
			if open, _ := s.Connections(); open != 0 {
				t.Errorf("%d connections are open", open)
			}
		})
	}
}

// TestPanicsOfInspections lets the inspection of one connection panic: the others are inspected.
func TestPanicsOfInspections(t *testing.T) {
	var ends []net.Conn
	// The timer has been set, and has fired: the test inspects when it is ready.
	s := &Server{Handler: http.NotFoundHandler(), HeaderTimeout: time.Second, timer: time.NewTimer(time.Hour)}
	s.timer.Stop()
	for _, method := range []string{"SetReadDeadline", "", ""} {
		near, far := net.Pipe()
		ends = append(ends, far)
		if !s.add(newConn(s, &h1test.Faulty{Conn: near, Method: method})) {
			t.Fatal("the connection was not added")
		}
	}
	for c := range s.conns {
		c.reading.Store(mark(phaseNew, 1)) // it began long ago
	}
	s.inspect()
	for _, end := range ends[:1] {
		if _, err := end.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the faulty connection returned %v, want its end", err)
		}
	}
	for c := range s.conns {
		if c.Conn.(*h1test.Faulty).Method == "" {
			if _, err := c.Conn.Read(make([]byte, 1)); !wire.IsTimeout(err) {
				t.Errorf("a connection behind a faulty one returned %v, want its time limit", err)
			}
		}
	}
	if !s.timer.Stop() {
		t.Error("no further inspection is planned")
	}
}

// TestPanicsOfResumed lets the resumption of a parked connection panic.
func TestPanicsOfResumed(t *testing.T) {
	near, far := net.Pipe()
	ended := false
	s := &Server{Handler: http.NotFoundHandler()}
	s.resume(&parked{conn: &h1test.Faulty{Conn: near, Method: "RemoteAddr"}, ended: func() { ended = true }})
	if _, err := far.Read(make([]byte, 1)); err != io.EOF || !ended {
		t.Errorf("the faulty connection returned %v, ended: %v", err, ended)
	}
}
