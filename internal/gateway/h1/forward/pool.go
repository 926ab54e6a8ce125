// Package forward sends requests to servers by HTTP/1.1, and copies their responses: Pool has the connections to one
// server.
//
// It does not choose servers, and sends no request to a second one: load balancers do. The theory of operation is that
// of package h1.
package forward

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/wire"
)

// Pool keeps connections to one address of a server. Set the fields before the first request. Its
// methods may be called concurrently.
type Pool struct {
	// Dial connects to the server, and completes the TLS handshake if the server wants TLS. It
	// applies the timeouts of both.
	Dial func(context.Context) (net.Conn, error)
	// MaxIdle limits the idle connections that are kept. 0 means 200; a negative one keeps none.
	MaxIdle int
	// MaxConns limits all connections; further requests get ErrBusy. 0 means no limit.
	MaxConns int
	// IdleTimeout closes connections that were idle for so long. 0 means 90 s.
	IdleTimeout time.Duration
	// HeaderTimeout limits the time from the end of the request to the head of the response. 0
	// means no limit.
	HeaderTimeout time.Duration

	mu sync.Mutex
	// idle is a stack: the connection that was used last is used next, so that surplus
	// connections time out.
	idle   []*upstream
	all    map[*upstream]struct{}
	dials  map[*dialing]struct{}
	open   int // connections and dials
	closed bool
	timer  *time.Timer
	// now is the time of the last inspection, in nanoseconds.
	now    atomic.Int64
	counts counts
}

type counts struct {
	dialed, dialErrors, reused, stale, replayed, requests atomic.Uint64
}

// Counters are a pool's counters since its start, and its present connections.
type Counters struct {
	// Requests were answered. Replayed ones were sent twice because an idle connection was dead.
	Requests, Replayed uint64
	// Dialed connections include neither DialErrors nor Reused ones. Stale connections were found
	// closed, or with unexpected bytes, before they were used.
	Dialed, DialErrors, Reused, Stale uint64
	Open, Idle                        int
}

// dialing is a connection that is being made.
type dialing struct{ cancel context.CancelCauseFunc }

// dialLimit limits how long connecting takes once the pool is closed. The server may not exist any more: it
// would not answer, and the request can be sent to another server.
const dialLimit = time.Second

// interrupt cancels the dial if it still lasts at the end of dialLimit.
func (d *dialing) interrupt() {
	goroutine.After(dialLimit, "end a dial", func() { d.cancel(wire.ErrClosed) })
}

// Counters returns the pool's counters.
func (p *Pool) Counters() Counters {
	p.mu.Lock()
	open, idle := len(p.all), len(p.idle)
	p.mu.Unlock()
	return Counters{Requests: p.counts.requests.Load(), Replayed: p.counts.replayed.Load(),
		Dialed: p.counts.dialed.Load(), DialErrors: p.counts.dialErrors.Load(), Reused: p.counts.reused.Load(),
		Stale: p.counts.stale.Load(), Open: open, Idle: idle}
}

// Close closes the idle connections, and no more are kept. Requests in progress complete, and so do
// later ones, each on a connection of its own: while a configuration is replaced, a request may have
// chosen the server already. From then on, connecting takes at most a second.
func (p *Pool) Close() {
	p.mu.Lock()
	for d := range p.dials {
		d.interrupt()
	}
	idle := p.idle
	p.idle, p.closed = nil, true
	for _, u := range idle {
		p.forget(u)
	}
	p.mu.Unlock()
	for _, u := range idle {
		u.close()
	}
}

// get returns a connection: the idle one that was used last, which may be stale, or a new one if fresh.
func (p *Pool) get(ctx context.Context, fresh bool) (*upstream, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; !fresh && last >= 0 {
		u := p.idle[last]
		p.idle[last], p.idle = nil, p.idle[:last]
		p.mu.Unlock()
		u.reused = true
		return u, nil
	}
	err := p.reserve()
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.dial(ctx)
}

// reserve counts a dial. The caller holds the lock.
func (p *Pool) reserve() error {
	if p.MaxConns > 0 && p.open >= p.MaxConns {
		return wire.ErrBusy
	}
	p.open++
	return nil
}

func (p *Pool) dial(ctx context.Context) (*upstream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &dialing{cancel}
	p.begin(d)
	c, err := p.Dial(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.dials, d)
	if err != nil {
		p.open--
		p.counts.dialErrors.Add(1)
		if context.Cause(ctx) == wire.ErrClosed {
			err = wire.ErrClosed
		}
		return nil, err
	}
	p.counts.dialed.Add(1)
	var clock *atomic.Int64
	if p.HeaderTimeout > 0 {
		clock = &p.now
	}
	u := newUpstream(c, clock)
	if p.all == nil {
		p.all = map[*upstream]struct{}{}
	}
	p.all[u] = struct{}{}
	if p.timer == nil {
		p.now.Store(time.Now().UnixNano())
		p.timer = goroutine.After(inspectBusy, "inspect connections to a server", p.inspect)
	}
	return u, nil
}

// begin makes Close interrupt the dial, also if it was called before.
func (p *Pool) begin(d *dialing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		d.interrupt()
		return
	}
	if p.dials == nil {
		p.dials = map[*dialing]struct{}{}
	}
	p.dials[d] = struct{}{}
}

// put keeps a connection whose last response was complete.
func (p *Pool) put(u *upstream) {
	limit := p.MaxIdle
	if limit == 0 {
		limit = 200
	}
	u.idleSince = p.now.Load()
	p.mu.Lock()
	// Without a socket, nothing shows whether an idle connection is alive.
	if p.closed || len(p.idle) >= limit || u.probe == nil {
		p.forget(u)
		p.mu.Unlock()
		u.close()
		return
	}
	p.idle = append(p.idle, u)
	p.mu.Unlock()
}

// drop closes a connection that is not idle.
func (p *Pool) drop(u *upstream) {
	p.mu.Lock()
	p.forget(u)
	p.mu.Unlock()
	u.close()
}

// forget removes a connection from the pool's list. The caller holds the lock.
func (p *Pool) forget(u *upstream) {
	if _, ok := p.all[u]; ok {
		delete(p.all, u)
		p.open--
	}
}

// inspect closes connections that were idle for too long, and interrupts requests that were cancelled
// or got no response in time. It runs as long as the pool has connections.
func (p *Pool) inspect() {
	now := time.Now().UnixNano()
	p.now.Store(now)
	timeout := p.IdleTimeout
	if timeout == 0 {
		timeout = 90 * time.Second
	}
	for _, u := range p.inspectAll(now, timeout) {
		u.close()
	}
}

// inspectAll inspects the connections, and returns those that were idle for too long.
func (p *Pool) inspectAll(now int64, timeout time.Duration) (old []*upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > len(old) && now-p.idle[len(old)].idleSince >= int64(timeout) {
		old = append(old, p.idle[len(old)])
	}
	p.idle = append(p.idle[:0], p.idle[len(old):]...)
	for _, u := range old {
		p.forget(u)
	}
	busy := false
	for u := range p.all {
		busy = p.check(u, now) || busy
	}
	switch {
	case len(p.all) == 0:
		p.timer = nil
	case busy:
		p.timer.Reset(inspectBusy)
	default:
		p.timer.Reset(inspectIdle)
	}
	return old
}

// check inspects a connection, and closes it if that fails. It returns whether it has a request.
func (p *Pool) check(u *upstream, now int64) (busy bool) {
	defer goroutine.Recover("inspect a connection to a server", func() { _ = u.Conn.Close() })
	return u.inspect(now, p.HeaderTimeout)
}
