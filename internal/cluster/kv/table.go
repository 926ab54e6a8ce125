package kv

import (
	"bytes"
	"slices"
	"strings"
)

// chunkLength is how many entries a chunk of a Table has at most. A change of one entry copies one
// chunk and the list of chunks, so with 50,000 entries this is about the cheapest length.
const chunkLength = 256

// Table is a Snapshot in memory. It does not change: With returns another Table, which shares all
// chunks without changes.
type Table struct {
	revision int64
	length   int
	// chunks have the entries in the order of their keys. No chunk is empty.
	chunks []*chunk
}

type chunk struct{ entries []Entry }

// NewTable returns a Table with these entries, in any order. It takes over the slice. Of entries
// with the same key it keeps the last.
func NewTable(revision int64, entries []Entry) *Table {
	entries = lastOfEachKey(entries)
	t := &Table{revision: revision, length: len(entries)}
	t.chunks = appendChunks(nil, entries)
	return t
}

// lastOfEachKey sorts the entries by key, and keeps the last of those with the same key.
func lastOfEachKey(entries []Entry) []Entry {
	slices.SortStableFunc(entries, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	kept := entries[:0]
	for i, e := range entries {
		if i+1 == len(entries) || entries[i+1].Key != e.Key {
			kept = append(kept, e)
		}
	}
	return kept
}

// appendChunks divides sorted entries into chunks that are about half full, so that there is room
// for more.
func appendChunks(chunks []*chunk, entries []Entry) []*chunk {
	if len(entries) <= chunkLength {
		if len(entries) > 0 {
			chunks = append(chunks, &chunk{slices.Clip(entries)})
		}
		return chunks
	}
	for part := range slices.Chunk(entries, chunkLength/2) {
		chunks = append(chunks, &chunk{slices.Clip(part)})
	}
	return chunks
}

// Revision returns the revision of the store at which the table has all entries.
func (t *Table) Revision() int64 { return t.revision }

// Len returns the number of entries.
func (t *Table) Len() int { return t.length }

// Get returns the entry of a key, and whether it exists.
func (t *Table) Get(key string) (Entry, bool) {
	if n := t.chunkOf(key); n < len(t.chunks) {
		entries := t.chunks[n].entries
		if at, found := search(entries, key); found {
			return entries[at], true
		}
	}
	return Entry{}, false
}

// Under calls yield for each entry whose key begins with the prefix, in the order of the keys,
// until yield returns false.
func (t *Table) Under(prefix string) func(yield func(Entry) bool) {
	return func(yield func(Entry) bool) {
		n := t.chunkOf(prefix)
		if n == len(t.chunks) {
			return
		}
		at, _ := search(t.chunks[n].entries, prefix)
		for ; n < len(t.chunks); n, at = n+1, 0 {
			for _, e := range t.chunks[n].entries[at:] {
				if !strings.HasPrefix(e.Key, prefix) || !yield(e) {
					return
				}
			}
		}
	}
}

// With returns a table with changed entries, at a later revision. An entry with a nil Value deletes
// its key.
func (t *Table) With(revision int64, changes []Entry) *Table {
	changes = lastOfEachKey(slices.Clone(changes))
	next := &Table{revision: revision, length: t.length, chunks: make([]*chunk, 0, len(t.chunks)+1)}
	done := 0 // chunks
	for len(changes) > 0 {
		n := t.chunkOf(changes[0].Key)
		next.chunks = append(next.chunks, t.chunks[done:n]...)
		var entries []Entry // none in an empty table
		mine := len(changes)
		if n < len(t.chunks) {
			entries = t.chunks[n].entries
		}
		if done = min(n+1, len(t.chunks)); done < len(t.chunks) {
			mine, _ = search(changes, t.chunks[done].entries[0].Key)
		}
		merged := merge(entries, changes[:mine])
		next.length += len(merged) - len(entries)
		next.chunks = appendChunks(next.chunks, merged)
		changes = changes[mine:]
	}
	next.chunks = append(next.chunks, t.chunks[done:]...)
	return next
}

// merge applies sorted changes to sorted entries.
func merge(entries, changes []Entry) []Entry {
	merged := make([]Entry, 0, len(entries)+len(changes))
	for _, c := range changes {
		before, found := search(entries, c.Key)
		merged = append(merged, entries[:before]...)
		if c.Value != nil {
			merged = append(merged, c)
		}
		if found {
			before++
		}
		entries = entries[before:]
	}
	return append(merged, entries...)
}

// chunkOf returns the number of the chunk in which the key is, or would be. It is len(t.chunks)
// only for an empty table.
func (t *Table) chunkOf(key string) int {
	n, found := slices.BinarySearchFunc(t.chunks, key, func(c *chunk, key string) int {
		return strings.Compare(c.entries[0].Key, key)
	})
	if !found && n > 0 {
		n--
	}
	return n
}

func search(entries []Entry, key string) (at int, found bool) {
	return slices.BinarySearchFunc(entries, key, func(e Entry, key string) int {
		return strings.Compare(e.Key, key)
	})
}

// Diff returns the keys whose entries differ between two tables, in order. It skips the chunks that
// both share.
func Diff(from, to *Table) []string {
	var keys []string
	a, b := cursor{chunks: from.chunks}, cursor{chunks: to.chunks}
	for !a.end() || !b.end() {
		if a.skip(&b) {
			continue
		}
		switch order := a.compare(b); {
		case order < 0:
			keys = append(keys, a.next().Key)
		case order > 0:
			keys = append(keys, b.next().Key)
		default:
			was, is := a.next(), b.next()
			if was.Revision != is.Revision || !bytes.Equal(was.Value, is.Value) {
				keys = append(keys, is.Key)
			}
		}
	}
	return keys
}

// cursor is a position in a table.
type cursor struct {
	chunks []*chunk
	at     int // in the first chunk
}

func (c *cursor) end() bool { return len(c.chunks) == 0 }

// compare compares the keys at two positions. The end is after all keys.
func (c *cursor) compare(other cursor) int {
	switch {
	case c.end():
		return 1
	case other.end():
		return -1
	}
	return strings.Compare(c.chunks[0].entries[c.at].Key, other.chunks[0].entries[other.at].Key)
}

// skip moves both cursors past a chunk that both are about to enter.
func (c *cursor) skip(other *cursor) bool {
	if c.end() || other.end() || c.at > 0 || other.at > 0 || c.chunks[0] != other.chunks[0] {
		return false
	}
	c.chunks, other.chunks = c.chunks[1:], other.chunks[1:]
	return true
}

func (c *cursor) next() Entry {
	e := c.chunks[0].entries[c.at]
	if c.at++; c.at == len(c.chunks[0].entries) {
		c.chunks, c.at = c.chunks[1:], 0
	}
	return e
}
