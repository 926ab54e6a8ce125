package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/boltfile"

	"go.etcd.io/bbolt"
)

// table is a bucket of values, each stored as JSON under its key. rows is a copy
// in memory, so that a save writes only what has changed.
type table[T any] struct {
	bucket []byte
	key    func(T) string
	equal  func(a, b T) bool
	rows   map[string]T
}

func newTable[T any](d *database, bucket string, key func(T) string, equal func(a, b T) bool) *table[T] {
	t := &table[T]{bucket: []byte(bucket), key: key, equal: equal, rows: map[string]T{}}
	d.tables = append(d.tables, t)
	return t
}

// all returns the values in the order of their keys, or nil if there is none.
func (t *table[T]) all() []T {
	var values []T
	for _, key := range slices.Sorted(maps.Keys(t.rows)) {
		values = append(values, t.rows[key])
	}
	return values
}

// read fills rows from the bucket.
func (t *table[T]) read(tx *bbolt.Tx) error {
	b := tx.Bucket(t.bucket)
	if b == nil {
		return nil
	}
	return b.ForEach(func(key, value []byte) error {
		var v T
		text, err := boltfile.Content(t.bucket, key, value)
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", t.bucket, key, err)
		}
		t.rows[string(key)] = v
		return nil
	})
}

// change is what a save changes in a table.
type change struct {
	bucket []byte
	// put maps keys to new values. A nil value deletes the entry.
	put map[string]any
	// done updates the table's rows. It is called after the transaction.
	done func()
	// split returns the change as one that only puts values, and one that only deletes entries.
	split func() (puts, deletes change)
}

func (c change) any() bool { return len(c.put) > 0 }

// set returns the change that replaces all values of the table. The caller must
// not modify the values afterwards.
func (t *table[T]) set(values []T) change {
	put := map[string]any{}
	kept := 0
	for _, v := range values {
		key := t.key(v)
		old, ok := t.rows[key]
		if ok {
			kept++
		}
		if !ok || !t.equal(old, v) {
			put[key] = v
		}
	}
	if kept < len(t.rows) {
		keep := make(map[string]bool, len(values))
		for _, v := range values {
			keep[t.key(v)] = true
		}
		for key := range t.rows {
			if !keep[key] {
				put[key] = nil
			}
		}
	}
	return t.change(put)
}

// change returns the change that puts the values under their keys, and deletes
// the entries whose value is nil.
func (t *table[T]) change(put map[string]any) change {
	done := func() {
		for key, v := range put {
			if v == nil {
				delete(t.rows, key)
			} else {
				t.rows[key] = v.(T)
			}
		}
	}
	split := func() (puts, deletes change) {
		some, none := map[string]any{}, map[string]any{}
		for key, v := range put {
			if v == nil {
				none[key] = nil
			} else {
				some[key] = v
			}
		}
		return t.change(some), t.change(none)
	}
	return change{t.bucket, put, done, split}
}

func (c change) write(tx *bbolt.Tx) error {
	if !c.any() {
		return nil
	}
	for key, v := range c.put {
		var err error
		if v == nil {
			err = boltfile.Delete(tx, c.bucket, []byte(key))
		} else {
			var text []byte
			if text, err = json.Marshal(v); err == nil {
				err = boltfile.Put(tx, c.bucket, []byte(key), text)
			}
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", c.bucket, key, err)
		}
	}
	return nil
}
