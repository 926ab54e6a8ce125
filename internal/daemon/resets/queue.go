// Package resets calls functions that reset clients of services while the daemon handles other requests. A request can
// wait for those that it has added itself. Reports of what was reset are made in the order of the steps. The package
// does not know how clients are reset; package engine does.
package resets

import (
	"context"
	"sync"

	"fairlead/internal/lock"
)

// Queue calls each function in a goroutine of its own, and the reports in the order in which the functions were added.
// Its methods may be called concurrently.
type Queue struct {
	// state is locked while reports are called.
	state sync.Locker

	mu sync.Mutex
	// last was added last. It is nil if there is none left.
	last *entry
}

// entry is a function of the queue.
type entry struct {
	// called is true when the function has returned and all earlier entries are done.
	called bool
	// report is called then; it may be nil.
	report func()
	// done is closed after the report.
	done chan struct{}
}

// New returns an empty queue. The queue locks state while it calls reports.
func New(state sync.Locker) *Queue { return &Queue{state: state} }

// Add calls a function in a goroutine. It does not wait.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, e := q.last, &entry{done: make(chan struct{})}
	q.last = e
	go func() {
		defer close(e.done)
		f()
		if before != nil {
			<-before.done
		}
		q.finish(e)
	}()
}

// finish calls the report of an entry whose function has returned, when all earlier entries are done.
func (q *Queue) finish(e *entry) {
	q.mu.Lock()
	e.called = true
	report := e.report
	q.mu.Unlock()
	if report != nil {
		q.state.Lock()
		report()
		q.state.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == e {
		q.last = nil
	}
}

// Report calls a report of what was reset: at once if no function is left, and after the last function if one is left.
// If the last function has a report already, Report does nothing, because that report is about everything until then.
// The caller has locked state.
func (q *Queue) Report(report func()) {
	q.mu.Lock()
	e := q.last
	now := e == nil || e.report == nil && e.called
	if !now && e.report == nil {
		e.report = report
	}
	q.mu.Unlock()
	if now {
		report()
	}
}

// Own returns f. Each call of it sets own to a channel that is closed when the functions have returned that the call has
// added, and all earlier ones. If it has added none, own is unchanged. The caller of f has locked state, so that no other
// request adds one.
func (q *Queue) Own(own *<-chan struct{}, f func() error) func() error {
	return func() error {
		before := q.newest()
		defer func() {
			if e := q.newest(); e != nil && e != before {
				*own = e.done
			}
		}()
		return f()
	}
}

func (q *Queue) newest() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// Wait waits until own is closed, or the context ends. It does not wait if own is nil.
func Wait(ctx context.Context, own <-chan struct{}) {
	if own == nil {
		return
	}
	lock.Outside("the clients of a service")
	select {
	case <-own:
	case <-ctx.Done():
	}
}

// WaitAll waits until all functions have returned.
func (q *Queue) WaitAll() {
	if e := q.newest(); e != nil {
		Wait(context.Background(), e.done)
	}
}
