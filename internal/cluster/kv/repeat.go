package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The attempts of Repeat.
const (
	attempts     = 3
	attemptLimit = 5 * time.Second
	attemptPause = 20 * time.Millisecond
)

// Repeat commits a transaction, and commits it again if the answer was lost. The transaction must have
// a condition that is false once it was committed, or must be harmless if it is committed twice. lost
// is true if the answer to an earlier attempt was lost: a result that is not committed can then mean
// that the earlier attempt was. Returns ErrUnknown (errors.Is) if an attempt may have been committed,
// whatever the error of the last one is.
func Repeat(ctx context.Context, store Committer, t Txn) (result Result, lost bool, err error) {
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, attemptLimit)
		result, err = store.Commit(limited, t)
		cancel()
		if err == nil || !lost && !errors.Is(err, ErrUnknown) {
			return result, lost, err
		}
		lost = true
		if n == attempts || ctx.Err() != nil {
			break
		}
		Wait(ctx, attemptPause)
	}
	if !errors.Is(err, ErrUnknown) { // it is only that of the last attempt
		err = fmt.Errorf("%w, and repeating it failed: %v", ErrUnknown, err)
	}
	return Result{}, lost, err
}

// Read returns the newest entries of keys, by key. Keys that do not exist are missing.
func Read(ctx context.Context, store Committer, keys ...string) (map[string]Entry, error) {
	t := Txn{If: []Condition{{Key: "absent", Revision: 1}}} // which is false, so the store returns the entries
	for _, key := range keys {
		t.If = append(t.If, Condition{Key: key})
	}
	result, _, err := Repeat(ctx, store, t)
	return ByKey(result.Current), err
}

// ByKey returns entries by their keys.
func ByKey(entries []Entry) map[string]Entry {
	all := make(map[string]Entry, len(entries))
	for _, e := range entries {
		all[e.Key] = e
	}
	return all
}

// Wait returns after d, or when ctx ends.
func Wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
