package h2

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/wire"
)

// Pacer is a handler that ends requests of HTTP/2 and HTTP/3 whose client stops to send or to receive. The
// libraries only limit the whole time of a request, so a slow upload could not be
// distinguished from a client that keeps a server busy. (The HTTP/1.1 server has limits of
// its own.) It also refuses malformed requests that the libraries accept.
//
// A request costs no timer: once a second, all requests are inspected.
type Pacer struct {
	next http.Handler
	// read and write are how long a client may send and receive nothing.
	read, write time.Duration

	mu       sync.Mutex
	requests map[*paced]struct{}
	timer    *time.Timer
	// now is the time of the last inspection, in seconds.
	now atomic.Int64
}

// NewPacer returns the handler. The limits are for the time in which a client sends, and receives,
// nothing. 0 means no limit.
func NewPacer(next http.Handler, read, write time.Duration) *Pacer {
	return &Pacer{next: next, read: read, write: write, requests: map[*paced]struct{}{}}
}

// paceTick is the interval of inspections.
const paceTick = time.Second

// margin is how much longer than the time limit of a response without progress the library's limit of a
// whole response is. The handler extends that limit while it runs.
const margin = 5 * time.Second

// WholeResponse returns the library's limit of a whole response, for a limit without progress. 0 means no limit.
func WholeResponse(write time.Duration) time.Duration {
	if write == 0 {
		return 0
	}
	return write + margin
}

// paced is a request, as its writer and its body.
type paced struct {
	http.ResponseWriter
	body io.ReadCloser
	now  *atomic.Int64
	// reading and writing are when a read or write began that is not complete, or 0.
	reading, writing atomic.Int64
	// extended is when the deadline of the response was set last.
	extended int64
	// received is how many bytes of the body the handler has got.
	received atomic.Int64
	// last is when a part of the body was read last, in nanoseconds since 1970.
	last atomic.Int64
}

// tlsKey is the key of the TLS state of an HTTP/2 connection. The library does not see it
// below the frames that are inspected.
type tlsKey struct{}

// WithTLS is the ConnContext of the http.Server, for the TLS state of requests.
func WithTLS(ctx context.Context, c net.Conn) context.Context {
	at, ok := c.(interface{ NetConn() net.Conn })
	if !ok {
		return ctx
	}
	if secure, ok := at.NetConn().(*tls.Conn); ok {
		state := secure.ConnectionState()
		return context.WithValue(ctx, tlsKey{}, &state)
	}
	return ctx
}

// ServeHTTP implements http.Handler.
func (p *Pacer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if state, ok := r.Context().Value(tlsKey{}).(*tls.ConnectionState); ok {
		r.TLS = state
	}
	if isMalformed(r) {
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	at := &paced{ResponseWriter: w, body: r.Body, now: &p.now}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = at
	}
	p.add(at)
	defer p.remove(at)
	p.next.ServeHTTP(at, r)
}

func (p *Pacer) add(at *paced) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		p.now.Store(time.Now().Unix())
	}
	at.extended = p.now.Load()
	p.requests[at] = struct{}{}
	if p.timer == nil {
		p.timer = goroutine.After(paceTick, "inspect requests", p.inspect)
	}
}

func (p *Pacer) remove(at *paced) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.requests, at)
}

// inspect interrupts what takes too long. While it has the lock, no request ends: the
// writer of one that has ended must not be used.
func (p *Pacer) inspect() {
	now := time.Now()
	p.now.Store(now.Unix())
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requests) == 0 {
		p.timer = nil
		return
	}
	for at := range p.requests {
		p.check(at, now)
	}
	p.timer.Reset(paceTick)
}

// check interrupts the request if it takes too long.
func (p *Pacer) check(at *paced, now time.Time) {
	defer goroutine.Recover("inspect a request")
	control := http.NewResponseController(at.ResponseWriter)
	if exceeds(&at.reading, now, p.read) {
		_ = control.SetReadDeadline(time.Unix(1, 0)) // fails only if the request has ended
	}
	switch half := int64(p.write / time.Second / 2); {
	case p.write == 0:
	case exceeds(&at.writing, now, p.write):
		_ = control.SetWriteDeadline(time.Unix(1, 0))
	case now.Unix()-at.extended >= half:
		// The library's limit is for what is sent after the handler has returned.
		at.extended = now.Unix()
		_ = control.SetWriteDeadline(now.Add(WholeResponse(p.write)))
	}
}

func exceeds(since *atomic.Int64, now time.Time, limit time.Duration) bool {
	began := since.Load()
	return limit > 0 && began > 0 && now.Unix()-began > int64(limit/time.Second)
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// paceStep is how much a client must receive in the time limit.
const paceStep = 16 << 10

// Write implements http.ResponseWriter.
func (p *paced) Write(b []byte) (total int, err error) {
	defer p.writing.Store(0)
	for {
		p.writing.Store(p.now.Load())
		n, err := p.ResponseWriter.Write(b[:min(len(b), paceStep)])
		total, b = total+n, b[n:]
		if err != nil || len(b) == 0 {
			return total, err
		}
	}
}

// copySize is the size of the buffers of ReadFrom.
const copySize = 64 << 10

var copies = sync.Pool{New: func() any { return new([copySize]byte) }}

// ReadFrom implements io.ReaderFrom.
func (p *paced) ReadFrom(from io.Reader) (total int64, err error) {
	buf := copies.Get().(*[copySize]byte)
	defer copies.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			written, werr := p.Write(buf[:n])
			if total += int64(written); werr != nil {
				return total, werr
			}
		}
		if wire.IsDrained(from, n, len(buf)) {
			if werr := p.FlushError(); werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Flush implements http.Flusher.
func (p *paced) Flush() { _ = p.FlushError() }

// FlushError is for http.ResponseController.
func (p *paced) FlushError() error {
	p.writing.Store(p.now.Load())
	defer p.writing.Store(0)
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// Read implements io.Reader for the request's body.
func (p *paced) Read(b []byte) (int, error) {
	p.reading.Store(p.now.Load())
	defer p.reading.Store(0)
	n, err := p.body.Read(b)
	p.received.Add(int64(n))
	p.last.Store(time.Now().UnixNano())
	return n, err
}

// LastRead returns when the handler got a part of the body last.
func (p *paced) LastRead() time.Time { return time.Unix(0, p.last.Load()) }

// Received returns how many bytes of the body the handler has got.
func (p *paced) Received() int64 { return p.received.Load() }

// Close implements io.Closer.
func (p *paced) Close() error { return p.body.Close() }
