// Package source reads what the dashboard shows: once for all viewers, only while someone looks, and at a pace that
// bounds the cost.
//
// Theory of operation. Get starts a reading if one is due, waits for it until its context ends, and returns the newest
// value with its age. If the reading takes longer, its value is shown by the next Get. The pace follows the cost: a
// reading that took t is not repeated within t times Share. So a source uses at most 1/Share of a CPU, however many
// viewers and objects there are. A source that follows a counter of changes reads at half that pace while the counter
// stays, and at once when it grows: it may be ahead of its pace by Ahead, so that rare changes are shown at once, and
// many changes have a limited cost. A value that no viewer has asked for during Keep is dropped.
package source

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
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
	// Ahead is how far the readings after changes may be ahead of the pace.
	Ahead = time.Minute
	// quick is the cost of readings that Get waits for although it has a value.
	quick = 20 * time.Millisecond
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
	// Version grows with every reading that has found another value or error.
	Version uint64
}

// Source reads values of one kind. It is safe for concurrent use.
type Source[T any] struct{ reader }

// New returns a source that reads with a function. changes is nil, or returns a counter that grows when the value may
// have changed; it does not wait.
func New[T any](read func(context.Context) (T, error), changes func() uint64) *Source[T] {
	return &Source[T]{reader{read: func(ctx context.Context) (any, error) { return read(ctx) }, changes: changes}}
}

// Get returns the newest value. It waits for a reading until ctx ends.
func (s *Source[T]) Get(ctx context.Context) (value T, status Status) {
	v, status := s.get(ctx)
	if v != nil {
		value, _ = v.read.(T) // nil if T is an interface
	}
	return value, status
}

// Derive returns what a function makes of the newest value. The result is used for the same value and name for
// derivedFor, so that the work is not repeated for each viewer and each change of other values. The function must not
// depend on the viewer. What it says about the time, such as how long a certificate is valid, is that much older.
func Derive[T, D any](ctx context.Context, s *Source[T], name string, of func(T) D) (D, Status) {
	d, status := s.derive(ctx, name, func(read any) any {
		value, _ := read.(T) // nil if T is an interface
		return of(value)
	})
	value, _ := d.(D) // nil before the first reading
	return value, status
}

// derive is Derive without the types: the compiler copies a generic function for each pair of them.
func (s *reader) derive(ctx context.Context, name string, of func(read any) any) (any, Status) {
	v, status := s.get(ctx)
	if v == nil {
		return nil, status
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	d, ok := v.derived[name]
	if !ok || time.Since(d.made) >= derivedFor {
		d = derived{of(v.read), time.Now()}
		v.derived[name] = d
	}
	return d.value, status
}

// derivedFor is how long a derived value is used: less than a page stays as it is.
const derivedFor = 5 * time.Second

// derived is what a function has made of a value, and when.
type derived struct {
	value any
	made  time.Time
}

// value is what was read.
type value struct {
	read    any
	mu      sync.Mutex
	derived map[string]derived
}

// reader is a source without the type of its values.
type reader struct {
	read    func(context.Context) (any, error)
	changes func() uint64

	mu     sync.Mutex
	value  *value
	status Status
	// tried is the end of the last attempt; zero if the next one must not wait. From due on, the pace allows another
	// one.
	tried, due time.Time
	cost       time.Duration
	// counted is what changes returned before the last attempt.
	counted uint64
	// pending is closed at the end of the running attempt; nil if none runs.
	pending chan struct{}
	// expired is set if the value was changed during the running attempt.
	expired bool
	drop    *time.Timer
}

func (s *reader) get(ctx context.Context) (*value, Status) {
	for pending := s.start(time.Now()); pending != nil && ctx.Err() == nil && !s.slow(); pending = s.start(time.Now()) {
		select {
		case <-pending:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.status
}

// slow reports whether there is a value to show while a slow reading runs.
func (s *reader) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value != nil && !s.tried.IsZero() && s.status.Took > quick
}

// Refresh starts a reading if it is time for one, and returns the status of the newest value. It does not wait.
func (s *reader) Refresh() Status {
	s.start(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
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
	counted := s.counted
	if s.changes != nil {
		counted = s.changes()
	}
	due := s.due
	if s.changes != nil && counted == s.counted {
		due = latest(due, s.tried.Add(paceOf(2*s.cost)))
	} else if s.changes != nil {
		due = latest(due.Add(-Ahead), s.tried.Add(least))
	}
	if !s.tried.IsZero() && now.Before(due) {
		return nil
	}
	s.counted, s.pending = counted, make(chan struct{})
	go s.run(s.pending)
	return s.pending
}

// paceOf returns the least time between two readings of a cost.
func paceOf(cost time.Duration) time.Duration { return min(most, max(least, cost*Share)) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// run reads once.
func (s *reader) run(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	read, err := s.attempt(ctx)
	s.mu.Lock()
	before, failed := s.value, s.status.Err
	s.mu.Unlock()
	same := before != nil && fmt.Sprint(err) == fmt.Sprint(failed) &&
		(err != nil || reflect.DeepEqual(before.read, read))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	s.cost = s.tried.Sub(began)
	s.due = latest(s.due, s.tried).Add(paceOf(s.cost))
	if s.status.Err = err; err == nil {
		s.status.At, s.status.Took = s.tried, s.cost
	}
	if !same {
		s.status.Version++
	}
	if err == nil && (!same || s.value == nil) {
		s.value = &value{read: read, derived: map[string]derived{}}
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
	s.value, s.status, s.tried = nil, Status{Version: s.status.Version + 1}, time.Time{}
}
