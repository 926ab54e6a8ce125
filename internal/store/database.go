package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"fairlead/internal/boltfile"

	"go.etcd.io/bbolt"
)

// lockTimeout is how long to wait for another process to close the database,
// e.g. while it ends.
const lockTimeout = time.Second

// bootKey is the key of the boot's id in boltfile.Meta.
const bootKey = "boot"

// Format is the version of the databases' content.
const Format = 4

// database is a bbolt file with its tables.
type database struct {
	db     *bbolt.DB
	opt    boltfile.Options
	tables []reader
	copies *copier
}

// reader is a table of any type.
type reader interface{ read(*bbolt.Tx) error }

// openDatabase opens a database, and creates it if it does not exist and may be written. pid is the path of
// the file with the process id of the owner. It returns a *InUseError if another process has the database open,
// and a *DamagedError if it does not have what was stored in it.
func openDatabase(path, pid string, opt boltfile.Options) (*database, error) {
	opt.Format, opt.Wait = Format, lockTimeout
	db, err := boltfile.Open(path, opt)
	if errors.Is(err, boltfile.ErrInUse) {
		holder, _ := os.ReadFile(pid) // it may have ended just now
		return nil, &InUseError{Path: path, PID: string(holder)}
	}
	if damaged := new(boltfile.DamagedError); errors.As(err, &damaged) {
		return nil, &DamagedError{Path: path, Cause: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return &database{db: db, opt: opt}, nil
}

// empty reports whether the database has no entries except its metadata. Entries
// that only another version of the program knows count, too.
func (d *database) empty() (bool, error) {
	empty := true
	err := d.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if key, _ := b.Cursor().First(); key != nil && string(name) != boltfile.Meta {
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
	is, err := d.isOf(boot)
	if err != nil || is {
		return false, err
	}
	meta := []byte(boltfile.Meta)
	err = boltfile.Update(d.db, func(tx *bbolt.Tx) error {
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
		if err := b.Put([]byte(bootKey), []byte(boot)); err != nil {
			return err
		}
		return boltfile.Seal(tx, Format)
	})
	if err != nil {
		return true, fmt.Errorf("write store %s: %w", d.db.Path(), err)
	}
	return true, nil
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
	err := boltfile.Update(d.db, func(tx *bbolt.Tx) error {
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
	d.copies.changed()
	return nil
}
