package forward

import (
	"net/http"
	"sync"

	"fairlead/internal/gateway/h1/wire"
)

// bodyMode says how a request's body is sent.
type bodyMode uint8

const (
	bodyNone   bodyMode = iota
	bodyInline          // it is short, and is sent with the head
	bodyStream          // it is sent while the response is read
)

// MaxInline is the longest body that is read before the request is sent.
const MaxInline = 16 << 10

// exchange is one request and its response.
type exchange struct {
	pool *Pool
	w    http.ResponseWriter
	r    *http.Request
	host string
	u    *upstream

	mode    bodyMode
	expect  bool
	upgrade string
	// out is the request's head; a short body is appended to it from body.
	out, body []byte
	sender    *sender
	// started: the head of the response was given to the client. unflushed: the writer may hold
	// bytes back.
	started, unflushed bool
	flusher            http.Flusher
	flush              func()
	// answered: the server has sent at least one byte.
	answered bool
	decoder  wire.Chunked
}

func (x *exchange) flushNow() {
	if x.unflushed {
		x.unflushed = false
		x.flusher.Flush()
	}
}

func (x *exchange) clear() {
	x.pool, x.w, x.r, x.u, x.sender, x.flusher = nil, nil, nil, nil, nil, nil
	x.host, x.upgrade = "", ""
	x.expect, x.started, x.unflushed, x.answered = false, false, false, false
	clear(x.decoder.Trailer)
	x.decoder.Reset(nil)
	if cap(x.out) <= wire.BufferSize {
		exchanges.Put(x)
	}
}

// sender sends a request's body while another goroutine reads the response.
type sender struct {
	u       *upstream
	r       *http.Request
	left    int64 // -1: unknown
	chunked bool
	// proceed is closed when the body may be sent, stop when it is not wanted any more.
	proceed, stop, done chan struct{}
	allowed             bool
	// readErr and complete are valid after done.
	readErr  error
	complete bool
}

var exchanges = sync.Pool{New: func() any {
	x := new(exchange)
	x.flush = x.flushNow
	return x
}}
