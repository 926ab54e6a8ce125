package store

import (
	"errors"
	"os"
	"path/filepath"

	"fairlead/internal/boltfile"
	"fairlead/internal/model"

	"go.etcd.io/bbolt"
)

// ReadDesired returns the desired state that an earlier process saved. It writes
// nothing. It returns a *InUseError if a process has the databases open, a
// *DamagedError if they do not have what was stored in them, and an error that wraps
// os.ErrNotExist if nothing was saved.
func ReadDesired(at Places) (model.Desired, error) {
	f := &File{pid: filepath.Join(at.Run, "pid")}
	d, err := f.readDesired(at)
	return d, errors.Join(at.advise(err), f.closeAll())
}

func (f *File) readDesired(at Places) (d model.Desired, err error) {
	boot, err := currentBoot()
	if err != nil {
		return d, err
	}
	if f.lasting, err = openDatabase(filepath.Join(at.State, lastingName), f.pid,
		boltfile.Options{ReadOnly: true}); err != nil {
		return d, err
	}
	path := filepath.Join(at.Run, bootName)
	f.boot, err = openDatabase(path, f.pid, boltfile.Options{ReadOnly: true})
	damaged := new(DamagedError)
	absent := errors.Is(err, os.ErrNotExist) || errors.As(err, &damaged) && copyOfAnotherBoot(path, boot)
	if absent {
		f.boot, err = &database{}, nil // a reboot deleted it
	}
	if err != nil {
		return d, err
	}
	f.declare()
	err = f.lasting.read()
	if absent {
		f.boot = nil
	}
	current := false
	if err == nil && !absent {
		current, err = f.boot.isOf(boot)
	}
	if err == nil && current {
		err = f.boot.read()
	}
	if err != nil {
		return d, err
	}
	if !current {
		f.awaitSandboxes()
	}
	return f.stored(), nil
}

// isOf reports whether the database was written during that boot.
func (d *database) isOf(boot string) (is bool, err error) {
	err = d.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(boltfile.Meta))
		is = b != nil && string(b.Get([]byte(bootKey))) == boot
		return nil
	})
	return is, err
}
