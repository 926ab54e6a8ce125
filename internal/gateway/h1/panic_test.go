package h1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// faulty is a connection with a mistake: one of its methods panics.
type faulty struct {
	net.Conn
	method string
	after  atomic.Int32 // so many calls succeed before
}

func (f *faulty) call(method string) {
	if method == f.method && f.after.Add(-1) < 0 {
		panic("a mistake in " + method)
	}
}

func (f *faulty) Read(p []byte) (int, error) {
	f.call("Read")
	return f.Conn.Read(p)
}

func (f *faulty) Write(p []byte) (int, error) {
	f.call("Write")
	return f.Conn.Write(p)
}

func (f *faulty) RemoteAddr() net.Addr {
	f.call("RemoteAddr")
	return f.Conn.RemoteAddr()
}

func (f *faulty) SetReadDeadline(t time.Time) error {
	f.call("SetReadDeadline")
	return f.Conn.SetReadDeadline(t)
}

func (f *faulty) SetDeadline(t time.Time) error {
	f.call("SetDeadline")
	return f.Conn.SetDeadline(t)
}

// faults makes each second connection of a listener faulty.
type faults struct {
	net.Listener
	method string
	after  int32
	n      int
}

func (f *faults) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	if f.n++; err != nil || f.n%2 == 1 {
		return c, err
	}
	bad := &faulty{Conn: c, method: f.method}
	bad.after.Store(f.after)
	return bad, nil
}

// TestPanicsEndOneConnection lets connections panic where the server uses them: they end, and the others
// are served.
func TestPanicsEndOneConnection(t *testing.T) {
	pool := newPool(t, newBackend(t, echo).addr)
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
		"begin":          {"RemoteAddr", get, 0},
		"head":           {"Read", get, 0},
		"next head":      {"Read", get, 1},
		"body":           {"Read", chunk, 1},
		"response":       {"Write", get, 0},
		"early response": {"Write", chunk, 0},
		"handler":        {"", strings.Replace(get, "/a", "/panic", 1), 0},
		"hook":           {"", strings.Replace(get, "/a", "/after", 1) + "GARBAGE\r\n\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var ended sync.WaitGroup
			s := &Server{Handler: handler}
			all := &faults{Listener: l, method: test.method, after: test.after}
			go Accept(all, func(c net.Conn) { s.ServeConn(c, func() {}, ended.Done) })
			defer l.Close()
			good, in := dialFront(t, l.Addr().String())
			ended.Add(2)
			_, _ = io.WriteString(good, get)
			expect(t, in, "")
			bad, rest := dialFront(t, l.Addr().String())
			_, _ = io.WriteString(bad, test.request)
			if _, err := io.Copy(io.Discard, rest); isTimeout(err) {
				t.Error("the faulty connection does not end")
			}
			_, _ = io.WriteString(good, get)
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
		if !s.add(newConn(s, &faulty{Conn: near, method: method})) {
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
		if c.conn.(*faulty).method == "" {
			if _, err := c.conn.Read(make([]byte, 1)); !isTimeout(err) {
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
	s.resume(&parked{conn: &faulty{Conn: near, method: "RemoteAddr"}, ended: func() { ended = true }})
	if _, err := far.Read(make([]byte, 1)); err != io.EOF || !ended {
		t.Errorf("the faulty connection returned %v, ended: %v", err, ended)
	}
}

// TestPanicsOfServers lets the inspection of a connection to a server panic: the others are inspected.
func TestPanicsOfServers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := &Pool{all: map[*upstream]struct{}{}, timer: time.NewTimer(time.Hour)}
	var others []*upstream
	for _, method := range []string{"SetDeadline", "", ""} {
		near, _ := net.Pipe()
		u := newUpstream(&faulty{Conn: near, method: method}, nil)
		p.all[u] = struct{}{}
		u.begin(ctx)
		if method == "" {
			others = append(others, u)
		}
	}
	p.inspect()
	p.timer.Stop()
	for _, u := range others {
		if _, err := u.conn.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("a connection behind a faulty one returned %v, want to be interrupted", err)
		}
	}
	if !p.mu.TryLock() {
		t.Error("the pool's lock is held")
	}
}
