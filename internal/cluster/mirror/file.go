package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"fairlead/internal/boltfile"
	"fairlead/internal/cluster/kv"
)

// saveEvery is the least time between two writes of the file. A daemon that is killed starts with a
// snapshot that is older by at most this time.
const saveEvery = 5 * time.Second

// lockLimit is how long another process may use the file.
const lockLimit = 5 * time.Second

// Format is the version of the file's content.
const Format = 2

var (
	entriesTable = []byte("cluster entries") // key → revision, value
	stateTable   = []byte("cluster state")

	clusterKey  = []byte("cluster")
	revisionKey = []byte("revision")
	etcdKey     = []byte("etcd")
)

// file is the snapshot on disk. Each write is one transaction.
type file struct {
	db      *bbolt.DB
	cluster string
	saved   *kv.Table
	// etcd is the cluster id of the etcd that has the snapshot; 0 if it is not known.
	etcd uint64
}

// openFile opens or creates the file. The table is nil if the file has no snapshot of the cluster.
func openFile(path, cluster string) (*file, *kv.Table, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("open snapshot of the cluster: %w", err)
	}
	advised := func(err error) error {
		return fmt.Errorf("open snapshot of the cluster: %w: if that does not end by itself, delete the file %s; etcd has "+
			"all its content", err, path)
	}
	db, err := boltfile.Open(path, boltfile.Options{Format: Format, Wait: lockLimit})
	if err != nil {
		return nil, nil, advised(err)
	}
	opened := &file{db: db, cluster: cluster, saved: kv.NewTable(0, nil)}
	table, err := opened.read()
	if err != nil {
		return nil, nil, errors.Join(advised(err), db.Close())
	}
	if table != nil {
		opened.saved = table
	}
	return opened, table, nil
}

// Read returns the snapshot of a cluster that the file of an earlier Mirror has, or nil.
func Read(path, cluster string) (kv.Snapshot, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	f, table, err := openFile(path, cluster)
	if err != nil {
		return nil, err
	}
	if err := f.close(); err != nil || table == nil {
		return nil, err
	}
	return table, nil
}

// read returns the snapshot of the cluster, or nil. It deletes that of another cluster.
func (f *file) read() (table *kv.Table, err error) {
	err = f.db.View(func(tx *bbolt.Tx) (err error) {
		state, entries, err := values(tx)
		if err != nil || string(state[string(clusterKey)]) != f.cluster {
			return err
		}
		if revision := state[string(revisionKey)]; len(revision) == 8 {
			table = kv.NewTable(int64(binary.BigEndian.Uint64(revision)), entries)
		}
		if etcd := state[string(etcdKey)]; len(etcd) == 8 {
			f.etcd = binary.BigEndian.Uint64(etcd)
		}
		return nil
	})
	if err != nil || table != nil {
		return table, err
	}
	return nil, boltfile.Update(f.db, func(tx *bbolt.Tx) error {
		for _, table := range [][]byte{entriesTable, stateTable} {
			if err := tx.DeleteBucket(table); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		if err := boltfile.Seal(tx, Format); err != nil {
			return err
		}
		return boltfile.Put(tx, stateTable, clusterKey, []byte(f.cluster))
	})
}

// values returns the content of the file.
func values(tx *bbolt.Tx) (state map[string][]byte, entries []kv.Entry, err error) {
	state = map[string][]byte{}
	err = each(tx, stateTable, func(key, content []byte) error {
		state[string(key)] = bytes.Clone(content)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = each(tx, entriesTable, func(key, content []byte) error {
		if len(content) < 8 {
			return fmt.Errorf("the entry %s is too short", key)
		}
		entries = append(entries, kv.Entry{Key: string(key), Value: bytes.Clone(content[8:]),
			Revision: int64(binary.BigEndian.Uint64(content))})
		return nil
	})
	return state, entries, err
}

func each(tx *bbolt.Tx, table []byte, f func(key, content []byte) error) error {
	b := tx.Bucket(table)
	if b == nil {
		return nil
	}
	return b.ForEach(func(key, value []byte) error {
		content, err := boltfile.Content(table, key, value)
		if err != nil {
			return err
		}
		return f(key, content)
	})
}

// write makes the file's snapshot that of the table of an etcd, in one transaction.
func (f *file) write(etcd uint64, table *kv.Table) error {
	err := boltfile.Update(f.db, func(tx *bbolt.Tx) error {
		for _, key := range kv.Diff(f.saved, table) {
			e, ok := table.Get(key)
			if !ok {
				if err := boltfile.Delete(tx, entriesTable, []byte(key)); err != nil {
					return err
				}
				continue
			}
			value := append(binary.BigEndian.AppendUint64(nil, uint64(e.Revision)), e.Value...)
			if err := boltfile.Put(tx, entriesTable, []byte(key), value); err != nil {
				return err
			}
		}
		if err := boltfile.Put(tx, stateTable, etcdKey, binary.BigEndian.AppendUint64(nil, etcd)); err != nil {
			return err
		}
		return boltfile.Put(tx, stateTable, revisionKey, binary.BigEndian.AppendUint64(nil, uint64(table.Revision())))
	})
	if err != nil {
		return fmt.Errorf("write snapshot of the cluster: %w", err)
	}
	f.saved, f.etcd = table, etcd
	return nil
}

func (f *file) close() error { return f.db.Close() }

// save writes changed tables to the file until ctx ends, and then the last one.
func (m *Mirror) save(ctx context.Context) {
	for ctx.Err() == nil {
		changed := m.saveNow()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		kv.Wait(ctx, saveEvery)
	}
	m.saveNow()
}

// saveNow writes the newest table, and returns a channel that is closed at the next change.
func (m *Mirror) saveNow() <-chan struct{} {
	m.mu.Lock()
	etcd, table, known, changed := m.etcd, m.table, m.known, m.changed
	m.mu.Unlock()
	if known && table != m.file.saved {
		if err := m.file.write(etcd, table); err != nil {
			m.cfg.Log.Warn("the next start without etcd will use an older snapshot", "error", err)
		}
	}
	return changed
}
