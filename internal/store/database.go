package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// lockTimeout is how long to wait for another process to close the database,
// e.g. while it ends.
const lockTimeout = time.Second

// database is a bbolt file with its tables.
type database struct {
	db     *bbolt.DB
	tables []reader
}

// reader is a table of any type.
type reader interface{ read(*bbolt.Tx) error }

// openDatabase opens or creates a database. pid is the path of the file with
// the process id of the owner. It returns a *InUseError if another process has
// the database open.
func openDatabase(path, pid string, noSync bool) (*database, error) {
	db, err := openPresent(path, &bbolt.Options{Timeout: lockTimeout, NoSync: noSync, NoGrowSync: noSync,
		NoFreelistSync: true})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		holder, _ := os.ReadFile(pid) // it may have ended just now
		return nil, &InUseError{Path: path, PID: string(holder)}
	}
	if errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) ||
		errors.Is(err, bbolterrors.ErrVersionMismatch) {
		return nil, fmt.Errorf("open store %s: %w: restore a backup of the file, or move it to start with an empty store",
			path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &database{db: db}, nil
}

// openPresent opens the database, and again if the process that had it open has
// removed it meanwhile (File.Close).
func openPresent(path string, opt *bbolt.Options) (*bbolt.DB, error) {
	var file *os.File
	opt.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	for {
		db, err := bbolt.Open(path, 0o600, opt)
		if err != nil {
			return nil, err
		}
		opened, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		if present, err := os.Stat(path); err == nil && os.SameFile(opened, present) {
			return db, nil
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
	}
}

// empty reports whether the database has no entries except its metadata. Entries
// that only another version of the program knows count, too.
func (d *database) empty() (bool, error) {
	empty := true
	err := d.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if key, _ := b.Cursor().First(); key != nil && string(name) != "meta" {
				empty = false
			}
			return nil
		})
	})
	if err != nil {
		return false, fmt.Errorf("read store %s: %w", d.db.Path(), err)
	}
	return empty, nil
}

// of empties the database if it was not written since that boot, and reports
// whether it did. The reboot reset the kernel state that the database records, so a
// setting restored from it would be wrong.
func (d *database) of(boot string) (another bool, err error) {
	meta, key := []byte("meta"), []byte("boot")
	err = d.db.Update(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(meta); b != nil && string(b.Get(key)) == boot {
			return nil
		}
		another = true
		var names [][]byte
		err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			names = append(names, slices.Clone(name))
			return nil
		})
		for _, name := range names {
			err = errors.Join(err, tx.DeleteBucket(name))
		}
		if err != nil {
			return err
		}
		b, err := tx.CreateBucket(meta)
		if err != nil {
			return err
		}
		return b.Put(key, []byte(boot))
	})
	if err != nil {
		return another, fmt.Errorf("write store %s: %w", d.db.Path(), err)
	}
	return another, nil
}

// read fills every table.
func (d *database) read() error {
	return d.db.View(func(tx *bbolt.Tx) error {
		for _, t := range d.tables {
			if err := t.read(tx); err != nil {
				return fmt.Errorf("read store %s: %w", d.db.Path(), err)
			}
		}
		return nil
	})
}

// write writes the changes in one transaction. It does nothing if all are empty.
func (d *database) write(changes ...change) error {
	if !slices.ContainsFunc(changes, change.any) {
		return nil
	}
	err := d.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range changes {
			if err := c.write(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write store %s: %w", d.db.Path(), err)
	}
	for _, c := range changes {
		c.done()
	}
	return nil
}
