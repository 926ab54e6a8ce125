package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
	"fairlead/internal/gateway/h1/wire"
	"fairlead/test/place"
)

// poolTo returns a pool of connections to the address.
func poolTo(t *testing.T, addr string) *Pool {
	p := &Pool{Dial: h1test.Dialer(addr)}
	t.Cleanup(p.Close)
	return p
}

// TestPanicsOfServers lets the inspection of a connection to a server panic: the others are inspected.
func TestPanicsOfServers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p := &Pool{all: map[*upstream]struct{}{}, timer: time.NewTimer(time.Hour)}
	var others []*upstream
	for _, method := range []string{"SetDeadline", "", ""} {
		near, _ := net.Pipe()
		u := newUpstream(&h1test.Faulty{Conn: near, Method: method}, nil)
		p.all[u] = struct{}{}
		u.begin(ctx)
		if method == "" {
			others = append(others, u)
		}
	}
	p.inspect()
	p.timer.Stop()
	for _, u := range others {
		if _, err := u.Conn.Read(make([]byte, 1)); !wire.IsTimeout(err) {
			t.Errorf("a connection behind a faulty one returned %v, want to be interrupted", err)
		}
	}
	if !p.mu.TryLock() {
		t.Error("the pool's lock is held")
	}
}

// TestStaleConnectionIsFoundLate ends a server's side of a connection after the pool has taken it. The
// server answers nothing that it receives then, so a request would wait without an end.
func TestStaleConnectionIsFoundLate(t *testing.T) {
	b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
		_, _ = h1test.ReadRequestHead(br)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if n == 1 {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		_, _ = io.Copy(io.Discard, br)
	})
	p := poolTo(t, b.Addr)
	u, err := p.get(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n, writeErr, readErr := u.request([]byte(h1test.Get))
	if n != len(h1test.Get) || writeErr != nil || readErr != nil {
		t.Fatal(n, writeErr, readErr)
	}
	u.Consume(u.Buffered())
	p.put(u)
	if u, err = p.get(t.Context(), false); err != nil || !u.reused {
		t.Fatal(u, err)
	}
	for began := time.Now(); !wire.ClosedByPeer(u.probe, true); {
		if time.Since(began) > place.Timeout {
			t.Fatal("the server's end does not arrive")
		}
	}
	if n, err, _ := u.request([]byte(h1test.Get)); n != 0 || err != wire.ErrStale {
		t.Errorf("%d bytes were written, error %v", n, err)
	}
}

// TestUnacknowledgedRequests writes a POST on a connection that the server closes at the same time. A
// server that has received nothing of it cannot have begun to work on it. A server that has read it may
// have.
func TestUnacknowledgedRequests(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
	for name, reads := range map[string]bool{"closed before": false, "read, then closed": true} {
		closed := make(chan struct{})
		b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, _ int) {
			if reads {
				_, _ = br.Discard(len(post))
			}
			_ = c.Close()
			close(closed)
		})
		u, err := poolTo(t, b.Addr).get(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if !reads {
			<-closed
		}
		if _, err := io.WriteString(u.Conn, post); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = u.Fill()
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
			p, result := poolTo(t, l.Addr().String()), make(chan error, 1)
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
				_, _ = h1test.ReadRequestHead(br)
				_, _ = br.Discard(len(c.body))
			}
			if c.ends {
				_ = l.Close()
			}
			if conn != nil {
				_ = conn.Close()
			}
			var e *wire.Error
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

// responses are heads of responses at the borders of the grammar.
var responses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\na: c\r\n\r\n",
	"HTTP/1.1 200\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: close\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: a, close\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X, content-length\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	"HTTP/1.7 200 OK\nPragma: no-cache\n\n",
	"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\n \r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length : 5\r\nA: \x00\r\n\r\n",
}

// FuzzResponse proves that the parser of a response's head accepts only what net/http accepts, with the
// same meaning.
func FuzzResponse(f *testing.F) {
	for _, head := range responses {
		f.Add(head, false)
		f.Add(head, true)
	}
	f.Fuzz(func(t *testing.T, data string, toHead bool) {
		n := wire.HeadEnd([]byte(data), 0)
		if n == 0 {
			return
		}
		text, method := data[:n], "GET"
		if toHead {
			method = "HEAD"
		}
		u := new(upstream)
		got, err := u.parse(text, method)
		if err != nil {
			return
		}
		from := bufio.NewReader(strings.NewReader(text + "0\r\n\r\n"))
		want, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("accepted, but net/http refuses with %v: %q", err, text)
		}
		if rest, _ := io.ReadAll(from); string(rest) != "0\r\n\r\n" {
			t.Fatalf("the head of %q ends elsewhere: %q remains", text, rest)
		}
		compareResponses(t, got, u.fields, want)
	})
}

func compareResponses(t *testing.T, got response, fields []wire.Field, want *http.Response) {
	t.Helper()
	type view struct {
		Status          int
		Header          http.Header
		Length          int64
		Chunked, Closes bool
	}
	header := http.Header{}
	for _, f := range fields {
		header[f.Key] = append(header[f.Key], f.Value)
	}
	likeReadResponse(header, want)
	w := view{want.StatusCode, want.Header, want.ContentLength, want.TransferEncoding != nil, want.Close}
	if want.Body == http.NoBody {
		w.Length, w.Chunked = 0, false
	}
	if g := (view{got.status, header, got.length, got.chunked, got.closing}); !reflect.DeepEqual(g, w) {
		t.Fatalf("got  %+v\nwant %+v", g, w)
	}
}

// likeReadResponse makes the changes to the header with which http.ReadResponse moves fields to other
// places of the response, and takes back one that it makes.
func likeReadResponse(header http.Header, want *http.Response) {
	delete(header, "Transfer-Encoding")
	if want.TransferEncoding != nil {
		delete(header, "Trailer")
	}
	if want.ProtoMinor > 0 && wire.Named(header["Connection"], "close") {
		delete(header, "Connection")
	}
	if n := header["Content-Length"]; n != nil {
		header["Content-Length"] = n[:1]
	}
	if header["Pragma"] != nil && header["Cache-Control"] == nil {
		delete(want.Header, "Cache-Control")
	}
}
