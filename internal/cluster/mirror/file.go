package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"fairlead/internal/cluster/kv"
)

// saveEvery is the least time between two writes of the file. A daemon that is killed starts with a
// snapshot that is older by at most this time.
const saveEvery = 5 * time.Second

// lockLimit is how long another process may use the file.
const lockLimit = 5 * time.Second

var (
	entriesBucket = []byte("entries") // key → revision, value
	stateBucket   = []byte("state")
	clusterKey    = []byte("cluster")
	revisionKey   = []byte("revision")
	etcdKey       = []byte("etcd")
)

// file is the snapshot on disk. Each write is one transaction.
type file struct {
	db      *bbolt.DB
	cluster string
	saved   *kv.Table
	// etcd is the cluster id of the etcd that has the snapshot; 0 if it is not known.
	etcd uint64
}

// openFile opens or creates the file. The table is nil if the file has no snapshot of the cluster. bbolt
// panics at some damages.
func openFile(path, cluster string) (opened *file, table *kv.Table, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("open snapshot of the cluster: %w", err)
	}
	var db *bbolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of memory that the file does not have
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
		if err == nil {
			return
		}
		err = fmt.Errorf("open snapshot of the cluster: %w: if that does not end by itself, delete the file %s; etcd has "+
			"all its content", err, path)
		if opened, table = nil, nil; db != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockLimit})
	if err != nil {
		return nil, nil, err
	}
	opened = &file{db: db, cluster: cluster, saved: kv.NewTable(0, nil)}
	table, err = opened.read()
	if table != nil {
		opened.saved = table
	}
	return opened, table, err
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
	err = f.db.View(func(tx *bbolt.Tx) error {
		state, entries := tx.Bucket(stateBucket), tx.Bucket(entriesBucket)
		if state == nil || entries == nil || string(state.Get(clusterKey)) != f.cluster {
			return nil
		}
		var all []kv.Entry
		err := entries.ForEach(func(key, value []byte) error {
			if len(value) < 8 {
				return fmt.Errorf("the entry %s is too short", key)
			}
			all = append(all, kv.Entry{Key: string(key), Value: append([]byte{}, value[8:]...),
				Revision: int64(binary.BigEndian.Uint64(value))})
			return nil
		})
		if revision := state.Get(revisionKey); err == nil && len(revision) == 8 {
			table = kv.NewTable(int64(binary.BigEndian.Uint64(revision)), all)
		}
		if etcd := state.Get(etcdKey); len(etcd) == 8 {
			f.etcd = binary.BigEndian.Uint64(etcd)
		}
		return err
	})
	if err != nil || table != nil {
		return table, err
	}
	return nil, f.db.Update(func(tx *bbolt.Tx) error {
		for _, bucket := range [][]byte{entriesBucket, stateBucket} {
			if err := tx.DeleteBucket(bucket); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
			if _, err := tx.CreateBucket(bucket); err != nil {
				return err
			}
		}
		return tx.Bucket(stateBucket).Put(clusterKey, []byte(f.cluster))
	})
}

// write makes the file's snapshot that of the table of an etcd, in one transaction.
func (f *file) write(etcd uint64, table *kv.Table) error {
	err := f.db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		for _, key := range kv.Diff(f.saved, table) {
			e, ok := table.Get(key)
			if !ok {
				if err := entries.Delete([]byte(key)); err != nil {
					return err
				}
				continue
			}
			value := append(binary.BigEndian.AppendUint64(nil, uint64(e.Revision)), e.Value...)
			if err := entries.Put([]byte(key), value); err != nil {
				return err
			}
		}
		state := tx.Bucket(stateBucket)
		if err := state.Put(etcdKey, binary.BigEndian.AppendUint64(nil, etcd)); err != nil {
			return err
		}
		return state.Put(revisionKey, binary.BigEndian.AppendUint64(nil, uint64(table.Revision())))
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
