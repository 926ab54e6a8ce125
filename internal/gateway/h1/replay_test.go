package h1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairlead/test/place"
)

// atDeadline is a context that calls a function when the pool has chosen a connection, before
// it writes the request.
type atDeadline struct {
	context.Context
	call func()
}

func (c atDeadline) Deadline() (time.Time, bool) {
	c.call()
	return c.Context.Deadline()
}

// TestServerClosesAtTheSameTime sends a POST on a connection that the server closes after the pool has
// taken it. If it is closed before the request is written, another connection is used. A server that has
// read the request may have begun to work on it, so it is not sent again.
func TestServerClosesAtTheSameTime(t *testing.T) {
	for name, reads := range map[string]bool{"closed before": false, "read, then closed": true} {
		t.Run(name, func(t *testing.T) {
			end, ended := make(chan struct{}), make(chan struct{})
			b := newBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
				_, _ = readRequestHead(br)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if n > 1 {
					return
				}
				<-end
				if reads {
					ended <- struct{}{}
					_, _ = readRequestHead(br)
					_, _ = br.Discard(4)
					return
				}
				_ = c.Close()
				ended <- struct{}{}
			})
			p := newPool(t, b.addr)
			if err := p.Forward(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), ""); err != nil {
				t.Fatal(err)
			}
			once := false
			ctx := atDeadline{context.Background(), func() {
				if !once {
					once = true
					end <- struct{}{}
					<-ended
				}
			}}
			w := httptest.NewRecorder()
			err := p.Forward(w, httptest.NewRequest("POST", "/", strings.NewReader("body")).WithContext(ctx), "")
			if reads && err == nil {
				t.Error("a POST that the server has read was sent again")
			}
			if !reads && (err != nil || w.Body.String() != "ok" || p.Counters().Stale != 1) {
				t.Errorf("%v, %q, %+v", err, w.Body, p.Counters())
			}
		})
	}
}

// TestUnacknowledgedRequests writes a POST on a connection that the server closes at the same time. A
// server that has received nothing of it cannot have begun to work on it. A server that has read it may
// have.
func TestUnacknowledgedRequests(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
	for name, reads := range map[string]bool{"closed before": false, "read, then closed": true} {
		closed := make(chan struct{})
		b := newBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
			if reads {
				_, _ = br.Discard(len(post))
			}
			_ = c.Close()
			close(closed)
		})
		u, err := newPool(t, b.addr).get(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !reads {
			<-closed
		}
		if _, err := io.WriteString(u.conn, post); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = u.fill()
		}
		u.reused = true
		x := &exchange{u: u, r: httptest.NewRequest("POST", "/", nil), mode: bodyInline, out: []byte(post)}
		if got := x.unread(err); got == reads {
			t.Errorf("%s: unread is %v after %v", name, got, err)
		}
	}
}

// TestUnreadByAnEndedServer sends a POST to a server that ends while the request is in its socket. The
// kernel resets the connection, so the request may be sent to another server. It may not if the server
// has read it, still accepts connections, or could have read a part of it.
func TestUnreadByAnEndedServer(t *testing.T) {
	for name, c := range map[string]struct {
		body             string
		accepts, reads   bool
		ends, wantUnread bool
	}{
		"accepted, not read":     {body: "body", accepts: true, ends: true, wantUnread: true},
		"not accepted":           {body: "body", ends: true, wantUnread: true},
		"read":                   {body: "body", accepts: true, reads: true, ends: true},
		"reset by a live server": {body: "body", accepts: true},
		"long":                   {body: strings.Repeat("b", oneRead), accepts: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			p, result := newPool(t, l.Addr().String()), make(chan error, 1)
			go func() {
				r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
				result <- p.Forward(httptest.NewRecorder(), r, "")
			}()
			var conn net.Conn
			if c.accepts {
				if conn, err = l.Accept(); err != nil {
					t.Fatal(err)
				}
			}
			arrived(t, l.Addr().(*net.TCPAddr).Port, len(c.body))
			if c.reads {
				br := bufio.NewReader(conn)
				_, _ = readRequestHead(br)
				_, _ = br.Discard(len(c.body))
			}
			if c.ends {
				_ = l.Close()
			}
			if conn != nil {
				_ = conn.Close()
			}
			var e *Error
			if err := <-result; !errors.As(err, &e) || e.Repeatable("POST") != c.wantUnread {
				t.Errorf("%+v: want repeatable %t", err, c.wantUnread)
			}
		})
	}
}

// arrived waits until a connection to the port of 127.0.0.1 has more than n bytes that its server has
// not read. The kernel lists them also while the server has not accepted the connection.
func arrived(t *testing.T, port, n int) {
	t.Helper()
	const established = "01" // TCP_ESTABLISHED of include/net/tcp_states.h
	local := fmt.Sprintf("0100007F:%04X", port)
	for end := time.Now().Add(place.Timeout); time.Now().Before(end); runtime.Gosched() {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			var sent, unread int
			fields := strings.Fields(line)
			if fields[1] != local || fields[3] != established {
				continue
			}
			if _, err := fmt.Sscanf(fields[4], "%x:%x", &sent, &unread); err == nil && unread > n {
				return
			}
		}
	}
	t.Fatal("the request did not arrive")
}
