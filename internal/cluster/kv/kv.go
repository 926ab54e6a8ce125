// Package kv is a cluster's key-value store as the rest of the cluster uses it:
// transactions that compare revisions, and snapshots. Package etcd implements it.
//
// Keys are relative to the cluster's prefix. Revisions are those of etcd: one number per
// transaction of the whole store, which only grows.
package kv

import (
	"bytes"
	"context"
	"errors"
	"slices"
)

// ErrUnknown is the error of a transaction that may or may not have been committed: the
// answer was lost. Callers read the keys again before they decide.
var ErrUnknown = errors.New("the outcome of the transaction is unknown")

// ErrUnavailable is the error of a transaction that was not committed because no member
// of the store answered.
var ErrUnavailable = errors.New("etcd does not answer")

// ErrOtherEtcd is the error of a request that another etcd than the known one has answered. A transaction
// may have been committed there, so its outcome says nothing about the known one.
var ErrOtherEtcd = errors.New("another etcd has answered")

// ErrFrozen is the error of a transaction that was not committed because the store seems to be another
// one, or an older copy, and no administrator has accepted it.
var ErrFrozen = errors.New("the records of the cluster are frozen")

// ErrCompacted is the error of a read at a revision whose history the store has deleted.
var ErrCompacted = errors.New("etcd has deleted the history of this revision")

// ErrFuture is the error of a read at a revision that the store has not reached.
var ErrFuture = errors.New("etcd has not reached this revision")

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte
	// Revision is that of the key's last change (etcd's mod_revision).
	Revision int64
}

// Unchanged is the condition that the store has the entry.
func (e Entry) Unchanged() Condition { return Condition{e.Key, e.Revision, e.Value} }

// Condition is true if the key's last change has the revision. 0 means that the key
// does not exist.
type Condition struct {
	Key      string
	Revision int64
	// Value, if it is not nil, must also be equal: in a store that was restored from a
	// snapshot, another change may have the same revision.
	Value []byte
}

// Change puts a value under a key. A nil Value deletes the key.
type Change struct {
	Key   string
	Value []byte
	// Leased deletes the key when this node has not reached the store for about ten
	// seconds. For entries that only describe the node.
	Leased bool
}

// Txn makes all changes at once if all conditions are true. A Txn without changes compares only:
// its Result is that of the store's newest revision. Validate has the limits.
type Txn struct {
	If   []Condition
	Then []Change
}

// Holds reports whether all conditions are true in a snapshot. If a transaction was not committed, a later snapshot
// shows why: its conditions are not true there.
func (t Txn) Holds(s Snapshot) bool {
	for _, c := range t.If {
		e, _ := s.Get(c.Key)
		if e.Revision != c.Revision || c.Value != nil && !bytes.Equal(e.Value, c.Value) {
			return false
		}
	}
	return true
}

// Puts reports whether the transaction puts a value.
func (t Txn) Puts() bool {
	return slices.ContainsFunc(t.Then, func(c Change) bool { return c.Value != nil })
}

// Result is the outcome of a transaction that was answered.
type Result struct {
	// Committed is false if a condition was false. Nothing was changed then.
	Committed bool
	// Revision is the store's revision after the transaction. If Committed is true and a value was put, it is
	// that of all changed keys, and a snapshot will have it. No snapshot may ever have another one: other
	// programs that share the store change its revision, too.
	Revision int64
	// Current has the entries of the keys of the conditions if Committed is false.
	// Keys that do not exist are missing.
	Current []Entry
}

// Committer commits transactions. Its method may be called concurrently. Returns
// ErrUnavailable or ErrUnknown (errors.Is) if the store did not answer before ctx ended, and
// ErrOtherEtcd if another one did. Returns ErrFrozen while the store is not known to be the right one.
type Committer interface {
	Commit(ctx context.Context, t Txn) (Result, error)
}

// Snapshot has all entries of the cluster at one revision. Its values must not be
// changed.
type Snapshot interface {
	Revision() int64
	Get(key string) (Entry, bool)
	// Under calls yield for each entry whose key begins with the prefix, in the order of
	// the keys, until yield returns false. It is an iter.Seq if called with a prefix.
	Under(prefix string) func(yield func(Entry) bool)
}

// Update is a snapshot that follows another one.
type Update struct {
	Snapshot Snapshot
	// Changed has the keys whose entries differ from those of the consumer's previous snapshot,
	// in order. The first update has all keys.
	Changed []string
}

// Batch has changes from a store, in the order of their revisions.
type Batch struct {
	// Changes are those of whole transactions. A nil Value is a deletion. There is none if the
	// batch only shows that the store answers.
	Changes []Entry
	// Newest is the revision of the server that answered.
	Newest int64
}
