package h1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"fairlead/internal/gateway/h1/wire"
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, tcp: wire.TCPOf(nc), socket: wire.RawOf(nc), remote: nc.RemoteAddr().String(),
		request: new(http.Request), header: http.Header{}}
	_, c.secure = nc.(handshaker)
	c.Input.Init(nc)
	c.out.Init(nc, c.Raw)
	c.Input.Max = max(wire.BufferSize, s.maxHead())
	c.w.conn, c.w.header = c, http.Header{}
	c.newContext()
	return c
}

// handshaker is a connection with TLS.
type handshaker interface {
	Handshake() error
	ConnectionState() tls.ConnectionState
}

func (c *conn) handshake() bool {
	t, ok := c.Conn.(handshaker)
	if !ok {
		return true
	}
	if t.Handshake() != nil {
		return false
	}
	state := t.ConnectionState()
	c.tls = &state
	return true
}

var crlf = []byte("\r\n")

// maxEmptyLines is how many empty lines a client may send before a request. Some clients send one behind the body
// of the last request (RFC 9112 2.2).
const maxEmptyLines = 8

// errParks is returned by readRequest if the connection has waited for so long that it is parked.
var errParks = errors.New("the connection is to be parked")

// readRequest reads a head and parses it into c.request. The connection has waited for it since the
// given second; 0 means that it is new. It returns io.EOF if the client has ended the connection between
// two requests.
func (c *conn) readRequest(since int64) error {
	if since > 0 && !c.idle(since) {
		return io.EOF
	}
	limit := c.server.maxHead()
	c.Small = c.Raw == nil
	for searched, empty := 0, 0; ; {
		for ; bytes.HasPrefix(c.Bytes(), crlf); empty++ {
			if c.Consume(len(crlf)); empty == maxEmptyLines {
				return &refusal{http.StatusBadRequest, "there are too many empty lines before the request"}
			}
		}
		b := c.Bytes()
		if len(b) > 0 && searched == 0 {
			c.begun()
		}
		if n := wire.HeadEnd(b, searched); n > 0 && n <= limit {
			c.Small = false
			return c.take(n)
		}
		switch {
		case len(b) >= limit:
			return &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		case wire.HasBareCR(b[searched:]):
			return &refusal{http.StatusBadRequest, "a line ends with CR alone"}
		}
		searched = max(0, len(b)-2)
		if err := c.Fill(); err == wire.ErrFull {
			return &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		} else if err != nil {
			return c.ends(err)
		}
	}
}

// idle begins the phase in which the connection waits for a request. It returns false if the server
// drains.
func (c *conn) idle(since int64) bool {
	c.reading.Store(mark(phaseIdle, since))
	return !c.server.draining.Load() // Shutdown may have looked before the phase was stored.
}

// ends returns what an error of a read means: that the connection is parked, or that it ends.
func (c *conn) ends(err error) error {
	if c.parks() && errors.Is(err, os.ErrDeadlineExceeded) {
		return errParks
	}
	return io.EOF
}

// take parses the head, which is the first n bytes of the buffer.
func (c *conn) take(n int) error {
	text := string(c.Bytes()[:n])
	c.Consume(n)
	c.requests++
	if c.heard != nil {
		c.heard()
		c.heard = nil
	}
	c.enter(phaseHandler)
	return c.parse(text)
}

// handle runs the handler and completes the response. It returns false if the connection must close.
func (c *conn) handle() (ok bool) {
	w := &c.w
	w.begin(c.request)
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler && c.server.Panicked != nil {
			c.server.Panicked(c.request, v)
		}
		if !ok && !w.hijacked {
			if w.endsWithConnection() {
				c.reset()
			}
			w.release()
			c.endBody()
		}
	}()
	c.server.Handler.ServeHTTP(w, c.request)
	if w.hijacked {
		return true
	}
	return w.finish()
}

// next prepares the connection for the next request. It returns false if the connection must close.
func (c *conn) next() bool {
	whole := c.endBody()
	if c.deadlines.Swap(false) {
		_ = c.Conn.SetDeadline(time.Time{})
	}
	if ctx := c.ctx.Load(); ctx.used() {
		ctx.cancel(context.Canceled)
		c.newContext()
	}
	if c.w.closing || !whole {
		c.linger(whole)
		return false
	}
	return true
}

// endBody ends the request's body and reads what remains of it, if that is little. It returns whether
// the next request begins at the next byte.
func (c *conn) endBody() bool {
	if c.body == nil {
		return true
	}
	whole := c.body.end()
	c.body = nil
	return whole
}

// lingerTime is how long a connection is read after a response that the client may not have received
// yet: closing it with unread bytes would reset it (RFC 9112 9.6).
const lingerTime = 500 * time.Millisecond

func (c *conn) linger(whole bool) {
	if whole && c.Buffered() == 0 && c.socket != nil && wire.Quiet(c.socket) {
		return
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.enter(phaseHandler)
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
	c.Release()
	for range 64 {
		if c.Fill() != nil {
			return
		}
		c.Release()
	}
}

// refuse answers a request that could not be parsed.
func (c *conn) refuse(err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		c.request = &http.Request{ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: -1, Method: "GET"}
		c.w.begin(c.request)
		http.Error(&c.w, http.StatusText(r.status)+": "+r.reason, r.status)
		if c.w.finish() {
			c.linger(false)
		}
	}
	c.Release()
}

// inspect applies the time limits. It runs on another goroutine.
func (c *conn) inspect() {
	s := c.server
	now, r := s.now.Load(), c.reading.Load()
	waited := now - r>>3
	switch r & 7 {
	case phaseNew, phaseHead:
		c.limitRead(s.HeaderTimeout, waited)
	case phaseIdle:
		if !c.limitRead(s.IdleTimeout, waited) && waited >= parkAfter {
			c.askToPark(r)
		}
	case phaseBody:
		if waited > 0 && (c.moved(wire.Received) || c.socket != nil && wire.Unread(c.socket)) {
			c.reading.CompareAndSwap(r, mark(phaseBody, now))
		} else {
			c.limitRead(s.ReadTimeout, waited)
		}
	case phaseHandler:
		if waited > 0 && c.socket != nil && wire.ClosedByPeer(c.socket, !c.secure) {
			c.ctx.Load().cancel(context.Canceled)
		}
	}
	begun := c.writing.Load()
	switch {
	case begun == 0 || begun == now || s.WriteTimeout == 0:
	case c.moved(wire.Acknowledged):
		c.writing.CompareAndSwap(begun, now)
	case now-begun > seconds(s.WriteTimeout) && (c.socket == nil || wire.Unsent(c.socket)):
		_ = c.Conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// moved returns true if bytes have arrived, or were acknowledged, since the last inspection. One read
// or write can last long: the kernel moves much of a long body in one.
func (c *conn) moved(direction int) bool {
	if c.socket == nil {
		return false
	}
	last := c.seen[direction]
	c.seen[direction] = wire.TransferredBy(c.socket)[direction]
	return c.seen[direction] != last
}

// limitRead interrupts the read if it has waited for longer than the limit.
func (c *conn) limitRead(limit time.Duration, waited int64) (passed bool) {
	if passed = limit > 0 && waited > seconds(limit); passed {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
	return passed
}

// interruptIdle ends the connection if it waits for a request.
func (c *conn) interruptIdle() {
	if phase := c.reading.Load() & 7; phase == phaseIdle || phase == phaseNew {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}
