package h1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/h1/h1test"
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
			b := h1test.NewBackend(t, func(c net.Conn, br *bufio.Reader, n int) {
				_, _ = h1test.ReadRequestHead(br)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				if n > 1 {
					return
				}
				<-end
				if reads {
					ended <- struct{}{}
					_, _ = h1test.ReadRequestHead(br)
					_, _ = br.Discard(4)
					return
				}
				_ = c.Close()
				ended <- struct{}{}
			})
			p := newPool(t, b.Addr)
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
