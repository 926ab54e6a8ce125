package member

import (
	"context"
	"sync"

	"fairlead/internal/cluster/kv"
)

// Latest is the newest snapshot that a consumer has. The zero value has none. The methods may be called concurrently.
type Latest struct {
	mu       sync.Mutex
	self     Self
	snapshot kv.Snapshot
	// replaced is closed when the snapshot is replaced; nil if no caller waits for that.
	replaced chan struct{}
}

// Replace takes over a snapshot, nil for none, and returns the one before.
func (l *Latest) Replace(self Self, s kv.Snapshot) (before kv.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.self, l.snapshot = l.snapshot, self, s
	if l.replaced != nil {
		close(l.replaced)
		l.replaced = nil
	}
	return before
}

// Current returns the snapshot and the node. Returns the error of NoRecords if there is none.
func (l *Latest) Current() (kv.Snapshot, Self, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshot == nil {
		return nil, l.self, NoRecords()
	}
	return l.snapshot, l.self, nil
}

// Await waits until the snapshot has the revision and fulfils the condition. It reports false if ctx ends before, or
// if there is no snapshot: the host has left the cluster.
func (l *Latest) Await(ctx context.Context, revision int64, holds func(kv.Snapshot) bool) bool {
	for {
		l.mu.Lock()
		if l.replaced == nil {
			l.replaced = make(chan struct{})
		}
		s, replaced := l.snapshot, l.replaced
		l.mu.Unlock()
		switch {
		case s == nil:
			return false
		case s.Revision() >= revision && holds(s):
			return true
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return false
		}
	}
}
