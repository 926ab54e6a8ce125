package h1

import (
	"context"
	"net/http"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// newContext gives the connection a context that no request has used.
func (c *conn) newContext() {
	parent := c.server.Context
	if parent == nil {
		parent = context.Background()
	}
	ctx := &requestContext{conn: c, parent: parent}
	c.ctx.Store(ctx)
	c.blank = new(http.Request).WithContext(ctx)
}

// Deadline implements context.Context.
func (x *requestContext) Deadline() (time.Time, bool) { return x.parent.Deadline() }

// Value implements context.Context.
func (x *requestContext) Value(key any) any {
	if key == http.LocalAddrContextKey {
		return x.conn.Conn.LocalAddr()
	}
	return x.parent.Value(key)
}

// Done implements context.Context.
func (x *requestContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done == nil {
		x.done = make(chan struct{})
		if x.err != nil {
			close(x.done)
		}
		x.follow()
	}
	return x.done
}

// Err implements context.Context.
func (x *requestContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	return x.parent.Err()
}

// AfterFunc makes package context derive contexts without a goroutine (see context.AfterFunc).
func (x *requestContext) AfterFunc(f func()) func() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		goroutine.Go("follow the end of a request", f)
		return func() bool { return false }
	}
	if x.after == nil {
		x.after = map[*func()]struct{}{}
	}
	key := &f
	x.after[key] = struct{}{}
	x.follow()
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		_, ok := x.after[key]
		delete(x.after, key)
		return ok
	}
}

// follow makes the end of the parent end this context. The caller holds the lock.
func (x *requestContext) follow() {
	if x.stop == nil && x.err == nil && x.parent.Done() != nil {
		x.stop = goroutine.OnDone(x.parent, "end a request", func() { x.cancel(x.parent.Err()) })
	}
}

// used returns true if the context cannot serve another request.
func (x *requestContext) used() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done != nil || x.after != nil || x.err != nil
}

func (x *requestContext) cancel(err error) {
	x.mu.Lock()
	if x.err != nil {
		x.mu.Unlock()
		return
	}
	x.err = err
	if x.done != nil {
		close(x.done)
	}
	after, stop := x.after, x.stop
	x.after = nil
	x.mu.Unlock()
	if stop != nil {
		stop()
	}
	for f := range after {
		goroutine.Go("follow the end of a request", *f)
	}
}
