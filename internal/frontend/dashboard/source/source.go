// Package source reads what the dashboard shows: once for all viewers, only while someone looks, and at a pace that
// bounds the cost.
//
// Theory of operation. Get starts a reading if the last one is older than the pace, waits for it a moment, and
// returns the newest value with its age. Get never waits for long: if the reading takes longer, its value is shown by
// the next Get. The pace follows the cost: a reading that took t is not repeated within t times Share. So a source
// uses at most 1/Share of a CPU, however many viewers and objects there are. A value that no viewer has asked for
// during Keep is dropped.
package source

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// The limits.
const (
	// Share is the inverse of the part of a CPU that one source may use.
	Share = 300
	// least and most bound the pace.
	least, most = time.Second, time.Minute
	// Patience is how long Get waits for a value.
	Patience = 400 * time.Millisecond
	// Keep is how long a value stays in memory without a viewer.
	Keep = 30 * time.Second
	// limit is the time limit of a reading.
	limit = 30 * time.Second
)

// Status says how old a value is, and whether it could be read again.
type Status struct {
	// At is when the value was read; zero if there is none yet.
	At time.Time
	// Took is how long that took.
	Took time.Duration
	// Err is why the newest attempt failed. The value is then that of the last successful one.
	Err error
	// Version grows with every reading.
	Version uint64
}

// Source reads values of one kind. It is safe for concurrent use.
type Source[T any] struct{ reader }

// New returns a source that reads with a function.
func New[T any](read func(context.Context) (T, error)) *Source[T] {
	return &Source[T]{reader{read: func(ctx context.Context) (any, error) { return read(ctx) }}}
}

// Get returns the newest value. It waits up to Patience for a reading, or until ctx ends.
func (s *Source[T]) Get(ctx context.Context) (T, Status) {
	value, status := s.get(ctx)
	v, _ := value.(T) // nil before the first reading
	return v, status
}

// reader is a source without the type of its values.
type reader struct {
	read func(context.Context) (any, error)

	mu     sync.Mutex
	value  any
	status Status
	// tried is the end of the last attempt, and pending is closed at the end of the running one; nil if none runs.
	tried   time.Time
	cost    time.Duration
	pending chan struct{}
	// expired is set if the value was changed during the running attempt.
	expired bool
	drop    *time.Timer
}

func (s *reader) get(ctx context.Context) (any, Status) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for pending := s.start(time.Now()); pending != nil && ctx.Err() == nil; pending = s.start(time.Now()) {
		select {
		case <-pending:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.status
}

// Refresh starts a reading if it is time for one, and returns the version of the newest value. It does not wait.
func (s *reader) Refresh() uint64 {
	s.start(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.Version
}

// Expire makes the next Get read, because a request has changed the value.
func (s *reader) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.expired = time.Time{}, s.pending != nil
}

// start starts a reading if it is time for one. It returns what is closed at the end of the running one; nil if
// none runs.
func (s *reader) start(now time.Time) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep()
	if s.pending != nil {
		return s.pending
	}
	if !s.tried.IsZero() && now.Sub(s.tried) < min(most, max(least, s.cost*Share)) {
		return nil
	}
	s.pending = make(chan struct{})
	go s.run(s.pending)
	return s.pending
}

// run reads once.
func (s *reader) run(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	value, err := s.attempt(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	s.cost = s.tried.Sub(began)
	s.status.Err = err
	s.status.Version++
	if err == nil {
		s.value, s.status.At, s.status.Took = value, s.tried, s.cost
	}
	if s.expired {
		s.tried, s.expired = time.Time{}, false
	}
	s.pending = nil
	close(done)
}

// attempt calls the reading function. A panic of it becomes an error, so that a mistake in what explains the host
// does not end the daemon.
func (s *reader) attempt(ctx context.Context) (value any, err error) {
	defer func() {
		if v := recover(); v != nil {
			slog.Error("a reading for the dashboard failed by a mistake", "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("read for the dashboard: panic: %v: report the stack in the daemon's log", v)
		}
	}()
	return s.read(ctx)
}

// keep postpones the end of the value.
func (s *reader) keep() {
	if s.drop == nil {
		s.drop = time.AfterFunc(Keep, s.forget)
		return
	}
	s.drop.Reset(Keep)
}

// forget drops the value.
func (s *reader) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.status, s.tried = nil, Status{Version: s.status.Version}, time.Time{}
}
