// Package kvtest has a cluster's store in memory, for tests of what uses it, and the tests that it
// and the real one pass. Its clients behave like those of an etcd that answers at once, until a
// test gives one a fault. It has no history: nothing is compacted or restored.
package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"fairlead/internal/cluster/kv"
)

// Store is a store without a network. Its methods may be called concurrently.
type Store struct {
	mu    sync.Mutex
	table *kv.Table
	// revision is that of the last change, also of other programs.
	revision int64
	// owners has the clients of leased keys.
	owners map[string]*Client
	// changed is closed at the next change of the table or of a fault.
	changed chan struct{}
}

// New returns an empty store.
func New() *Store {
	return &Store{table: kv.NewTable(1, nil), revision: 1, owners: map[string]*Client{}, changed: make(chan struct{})}
}

// Snapshot returns the entries of the store.
func (s *Store) Snapshot() kv.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table
}

// ChangeElsewhere changes the store outside of the cluster, as another program does that shares it. The cluster
// has no entry with the new revision.
func (s *Store) ChangeElsewhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
}

// Fault is what happens to the requests of a client.
type Fault int

// The faults of clients.
const (
	// Works is no fault.
	Works Fault = iota
	// Refused requests fail at once with ErrUnavailable. Updates wait.
	Refused
	// RequestLost fails with ErrUnknown when the context ends, and commits nothing.
	// Updates wait.
	RequestLost
	// AnswerLost commits the transaction and fails with ErrUnknown when the context ends.
	// Updates wait.
	AnswerLost
)

// Client is the connection of one node to the store. Its methods may be called concurrently.
type Client struct {
	store *Store
	fault Fault
	// lost counts the transactions whose request or answer was lost.
	lost int
}

// Client returns a connection without a fault.
func (s *Store) Client() *Client { return &Client{store: s} }

// Set changes the fault for requests that begin later, and for updates.
func (c *Client) Set(f Fault) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.fault = f
	c.store.wake()
}

// EndLease deletes the client's leased keys, as etcd does when the client has been cut off for
// longer than the lease.
func (c *Client) EndLease() {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	var ended []kv.Change
	for key, owner := range c.store.owners {
		if owner == c {
			ended = append(ended, kv.Change{Key: key})
		}
	}
	c.store.change(nil, ended)
}

// Lost returns how many transactions of the client have lost their request or their answer so far. Each fails when its
// context ends.
func (c *Client) Lost() int {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.lost
}

// Commit commits a transaction, or fails as the fault says.
func (c *Client) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	if err := t.Validate(); err != nil {
		return kv.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return kv.Result{}, fmt.Errorf("commit transaction: %w: %w", kv.ErrUnavailable, err)
	}
	c.store.mu.Lock()
	fault := c.fault
	var result kv.Result
	if fault == Works || fault == AnswerLost {
		result = c.store.commit(c, t)
	}
	if fault == RequestLost || fault == AnswerLost {
		c.lost++
	}
	c.store.mu.Unlock()
	switch fault {
	case Works:
		return result, nil
	case Refused:
		return kv.Result{}, fmt.Errorf("commit transaction: %w", kv.ErrUnavailable)
	}
	<-ctx.Done()
	return kv.Result{}, fmt.Errorf("commit transaction: %w: %w", kv.ErrUnknown, ctx.Err())
}

// commit makes the changes if all conditions are true. The caller has the lock.
func (s *Store) commit(by *Client, t kv.Txn) kv.Result {
	result := kv.Result{Committed: true}
	for _, condition := range t.If {
		e, _ := s.table.Get(condition.Key)
		result.Committed = result.Committed && e.Revision == condition.Revision &&
			(condition.Value == nil || bytes.Equal(e.Value, condition.Value))
	}
	if result.Committed {
		s.change(by, t.Then)
	} else {
		for _, condition := range t.If {
			if e, ok := s.table.Get(condition.Key); ok {
				result.Current = append(result.Current, e)
			}
		}
	}
	result.Revision = s.revision
	return result
}

// change makes changes. As in etcd, a transaction that deletes only keys that do not exist has no
// new revision. The caller has the lock.
func (s *Store) change(by *Client, changes []kv.Change) {
	revision := s.revision + 1
	var entries []kv.Entry
	for _, c := range changes {
		delete(s.owners, c.Key)
		switch _, exists := s.table.Get(c.Key); {
		case c.Value == nil && !exists:
			continue
		case c.Value == nil:
			entries = append(entries, kv.Entry{Key: c.Key, Revision: revision})
			continue
		case c.Leased:
			s.owners[c.Key] = by
		}
		entries = append(entries, kv.Entry{Key: c.Key, Value: append([]byte{}, c.Value...), Revision: revision})
	}
	if len(entries) > 0 {
		s.table, s.revision = s.table.With(revision, entries), revision
		s.wake()
	}
}

// wake wakes those who wait for changes. The caller has the lock.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Updates sends the snapshot, and one for each change that follows, until ctx ends. While the
// consumer is busy or the client has a fault, changes become one update.
func (c *Client) Updates(ctx context.Context) <-chan kv.Update {
	updates := make(chan kv.Update)
	go func() {
		defer close(updates)
		last := kv.NewTable(0, nil)
		for {
			next, changed := c.next()
			var send chan<- kv.Update
			var update kv.Update
			if next != nil && next.Revision() != last.Revision() {
				send, update = updates, kv.Update{Snapshot: next, Changed: kv.Diff(last, next)}
			}
			select {
			case send <- update:
				last = next
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return updates
}

// next returns the table as the client sees it, and a channel that is closed at the next change.
func (c *Client) next() (*kv.Table, <-chan struct{}) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.fault != Works {
		return nil, c.store.changed
	}
	return c.store.table, c.store.changed
}
