package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/model"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ReadDesired returns the desired state that an earlier process saved. It writes
// nothing. It returns a *InUseError if a process has the databases open, and an
// error that wraps os.ErrNotExist if nothing was saved.
func ReadDesired(at Places) (model.Desired, error) {
	f := &File{pid: filepath.Join(at.Run, "pid")}
	d, err := f.readDesired(at)
	return d, errors.Join(err, f.closeAll())
}

func (f *File) readDesired(at Places) (d model.Desired, err error) {
	if f.lasting, err = readDatabase(filepath.Join(at.State, "fairlead.db"), f.pid); err != nil {
		return d, err
	}
	f.boot, err = readDatabase(filepath.Join(at.Run, "boot.db"), f.pid)
	absent := errors.Is(err, os.ErrNotExist)
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
		current, err = f.boot.isCurrent()
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

// readDatabase opens an existing database read-only.
func readDatabase(path, pid string) (*database, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		holder, _ := os.ReadFile(pid) // it may have ended just now
		return nil, &InUseError{Path: path, PID: string(holder)}
	}
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", path, err)
	}
	return &database{db: db}, nil
}

// isCurrent reports whether the database was written since the last boot.
func (d *database) isCurrent() (current bool, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false, fmt.Errorf("read store: %w", err)
	}
	err = d.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("meta"))
		current = b != nil && string(b.Get([]byte("boot"))) == strings.TrimSpace(string(boot))
		return nil
	})
	return current, err
}
