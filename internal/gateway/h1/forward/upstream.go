package forward

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairlead/internal/gateway/h1/wire"
)

// upstream is a connection to a server. Between get and put it belongs to one request.
type upstream struct {
	wire.Input
	out wire.Output
	// tcp is nil if the connection uses TLS.
	tcp *net.TCPConn
	// probe is the socket, also below TLS. It is nil in tests without sockets.
	probe  syscall.RawConn
	reused bool
	// closing: the server closes the connection after this response. taken: the connection has left
	// the pool for another protocol.
	closing, taken bool
	// idleSince is protected by the pool's lock once the connection is idle.
	idleSince int64
	fields    []wire.Field
	// ask is tryAsk; asked: it has written the request.
	ask   func(fd uintptr) bool
	asked bool
	// clock has the time that the limit for the response's head needs. It is nil if there is no limit.
	clock *atomic.Int64

	// mu protects what inspect reads.
	mu    sync.Mutex
	ctx   context.Context
	cause error
	// sentAt is when the request was complete, 0 while the response is not awaited. answered: the
	// head of the final response has arrived.
	sentAt   int64
	answered bool
	// deadline is true if the request's context set a deadline on the connection.
	deadline bool
}

// The intervals of inspections: of a pool with requests in progress, and of an idle one.
const (
	inspectBusy = 250 * time.Millisecond
	inspectIdle = time.Second
)

func newUpstream(c net.Conn, clock *atomic.Int64) *upstream {
	u := &upstream{tcp: wire.TCPOf(c), probe: wire.RawOf(c), clock: clock}
	u.Input.Init(c)
	u.out.Init(c, u.Raw)
	u.ask = u.tryAsk
	return u
}

// request writes p and waits for the first bytes of the answer. n is how much of p was written. If
// writeErr is nil, all of it was; then readErr is an error of the wait. Without either, fill may still be
// needed for the first bytes. If the connection is stale, writeErr is errStale.
//
// The runtime's poller is prepared for the wait before p is written, so that an answer that arrives at
// once ends the wait. It saves the read with which fill begins: no server has answered by then. An idle
// connection is checked after that, too: the poller forgets an earlier report of its end.
func (u *upstream) request(p []byte) (n int, writeErr, readErr error) {
	if u.Raw == nil {
		if u.isStale() {
			return 0, wire.ErrStale, nil
		}
		if n, writeErr = u.Conn.Write(p); writeErr == nil {
			u.sent()
		}
		return n, writeErr, nil
	}
	u.out.Begin(p)
	u.asked = false
	err := u.Raw.Read(u.ask)
	n, writeErr = u.out.End()
	switch {
	case writeErr != nil:
	case n == len(p) && err == nil:
		return n, nil, u.Err
	case n == len(p):
		return n, nil, err
	case err != nil:
		writeErr = err
	default: // the socket accepts no more
		var rest int
		if rest, writeErr = u.out.Write(p[n:]); writeErr == nil {
			u.sent()
		}
		n += rest
	}
	return n, writeErr, nil
}

// tryAsk writes the request, and reads when it is called again. It returns false if it has to wait for
// bytes to read.
func (u *upstream) tryAsk(fd uintptr) bool {
	if u.asked {
		return u.TryRead(fd)
	}
	u.asked, u.Err = true, nil
	if u.reused && !wire.IsQuiet(fd) {
		u.out.Err = wire.ErrStale
		return true
	}
	if !u.out.TryWrite(fd) || u.out.Err != nil {
		return true
	}
	u.sent()
	return false
}

// isStale returns true if the connection was idle and cannot be used again.
func (u *upstream) isStale() bool { return u.reused && !wire.Quiet(u.probe) }

func (u *upstream) close() {
	u.Release()
	_ = u.Conn.Close()
}

// begin makes inspect watch the context of a request.
func (u *upstream) begin(ctx context.Context) {
	if d, ok := ctx.Deadline(); ok {
		_ = u.Conn.SetDeadline(d)
		u.deadline = true
	}
	u.mu.Lock()
	u.ctx, u.cause, u.sentAt, u.answered = ctx, nil, 0, false
	u.mu.Unlock()
}

// sent starts the time limit for the head of the response, if there is one, unless that has arrived
// already.
func (u *upstream) sent() {
	if u.clock == nil {
		return
	}
	u.mu.Lock()
	if !u.answered {
		u.sentAt = u.clock.Load()
	}
	u.mu.Unlock()
}

// arrived ends the time limit.
func (u *upstream) arrived() {
	u.mu.Lock()
	u.sentAt, u.answered = 0, true
	u.mu.Unlock()
}

// end returns false if the request was interrupted, so that the connection cannot be reused.
func (u *upstream) end() bool {
	u.mu.Lock()
	u.ctx = nil
	interrupted := u.cause != nil
	u.mu.Unlock()
	u.Wait = nil
	if u.deadline && !interrupted {
		_ = u.Conn.SetDeadline(time.Time{})
		u.deadline = false
	}
	return !interrupted
}

// abort interrupts the request's reads and writes with an error.
func (u *upstream) abort(cause error) {
	u.mu.Lock()
	u.interrupt(cause)
	u.mu.Unlock()
}

func (u *upstream) interrupt(cause error) {
	if u.ctx != nil && u.cause == nil {
		u.cause = cause
		_ = u.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// inspect interrupts a request that was cancelled or that waits for too long, and returns whether there
// is a request.
func (u *upstream) inspect(now int64, timeout time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx == nil {
		return false
	}
	if err := u.ctx.Err(); err != nil {
		u.interrupt(err)
	}
	// sentAt is up to one inspection old.
	if timeout > 0 && u.sentAt > 0 && now-u.sentAt >= int64(timeout+inspectIdle) {
		u.interrupt(wire.ErrHeaderTimeout)
	}
	return true
}

// reason returns why the request was interrupted, or err.
func (u *upstream) reason(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cause != nil {
		return u.cause
	}
	if u.ctx != nil && u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	return err
}
