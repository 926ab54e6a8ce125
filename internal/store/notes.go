package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// Notes are the values that a frontend saves in addition to the desired state.
// Each is JSON under a key that the frontend chooses. Notes are safe for
// concurrent use.
type Notes struct {
	file     *File
	database *database
	table    *table[note]
}

type note struct {
	Key  string
	Text json.RawMessage
}

func newNotes(f *File, d *database) *Notes {
	equal := func(a, b note) bool { return a.Key == b.Key && bytes.Equal(a.Text, b.Text) }
	return &Notes{f, d, newTable(d, "notes", func(n note) string { return n.Key }, equal)}
}

// Lasting returns the notes that survive a reboot.
func (f *File) Lasting() *Notes { return f.lastingNotes }

// Passing returns the notes that a reboot deletes.
func (f *File) Passing() *Notes { return f.passingNotes }

// All returns every note by its key.
func (n *Notes) All() map[string]json.RawMessage {
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	all := make(map[string]json.RawMessage, len(n.table.rows))
	for key, v := range n.table.rows {
		all[key] = v.Text
	}
	return all
}

// Put writes the given notes in one transaction. A nil value deletes the note.
func (n *Notes) Put(notes map[string]any) error {
	put := make(map[string]any, len(notes))
	for key, v := range notes {
		if v == nil {
			put[key] = nil
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write note %s: %w", key, err)
		}
		put[key] = note{key, text}
	}
	n.file.mu.Lock()
	defer n.file.mu.Unlock()
	maps.DeleteFunc(put, func(key string, v any) bool {
		_, inUse := n.table.rows[key]
		return v == nil && !inUse
	})
	return n.database.write(n.table.change(put))
}
