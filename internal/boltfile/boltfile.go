// Package boltfile opens bbolt files that know when they are damaged. It does not interpret the values.
//
// # Theory of operation
//
// bbolt has no checksum for the pages of its tree. A flipped bit can remove values without an error, and
// other damages make bbolt panic, loop or read memory that the file does not have. Therefore:
//
//   - Each value begins with a checksum of its table, its key and its content.
//   - The table meta has the number of all values, a digest over all of them, and the number of the last
//     transaction. [Put], [Delete] and [Update] change them in the same transaction as the values, so a
//     transaction that a power loss interrupted changes neither.
//   - [Open] locks the file and reads every page with a parser that bounds every access ([Read]). bbolt
//     gets the file only if the parser finds no damage.
//   - A new file is written beside its path and linked to it when it is complete. An incomplete or empty
//     file at the path is therefore a damage, and not a file that is being created.
//   - [Copy] writes a copy beside the file. If only the copy exists, the file is damaged too.
//
// Both meta pages of bbolt must be valid. A power loss cannot tear one: it is shorter than a sector.
package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Options describe a file.
type Options struct {
	// Format is the version of the content that the program reads and writes.
	Format int
	// Wait is how long another process may have the file locked.
	Wait time.Duration
	// NoSync means that a write need not survive a power loss.
	NoSync bool
	// ReadOnly means that nothing is written, and that the file must exist.
	ReadOnly bool
}

// ErrInUse means that another process has the file locked.
var ErrInUse = errors.New("another process uses the file")

// DamagedError means that a file does not have what was stored in it.
type DamagedError struct {
	Path  string
	Cause error
}

// Error implements error.
func (e *DamagedError) Error() string {
	if errors.Is(e.Cause, bbolterrors.ErrInvalid) { // it may never have been a database
		return e.Cause.Error()
	}
	return fmt.Sprintf("the file is damaged: %v", e.Cause)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// ErrMissing is the cause of a DamagedError if a file does not exist, but its copy does.
var ErrMissing = errors.New("it does not exist, but its copy does")

// Open opens a file, and creates it if it does not exist. Returns a *DamagedError, a *FormatError, ErrInUse,
// or fs.ErrNotExist if the file shall only be read. It changes nothing then.
func Open(path string, opt Options) (db *bbolt.DB, err error) {
	for attempt := 1; ; attempt++ {
		if !opt.ReadOnly {
			if err := create(path, opt); err != nil {
				return nil, err
			}
		}
		db, err = open(path, opt)
		// The process that had the file locked may have removed it.
		if opt.ReadOnly || !errors.Is(err, fs.ErrNotExist) || attempt == maxAttempts {
			return db, err
		}
	}
}

// maxAttempts is how often a file can be removed while it is being opened. A symbolic link to nothing exists and
// cannot be opened.
const maxAttempts = 20

func open(path string, opt Options) (db *bbolt.DB, err error) {
	var file *os.File
	// A disk that cannot read a page of the mapped file causes a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			db, err = nil, errors.Join(&DamagedError{path, fmt.Errorf("%v", cause)}, file.Close())
		}
	}()
	checked := func(string, int, os.FileMode) (_ *os.File, err error) {
		file, err = openChecked(path, opt)
		return file, err
	}
	return bbolt.Open(path, 0o600, &bbolt.Options{OpenFile: checked, ReadOnly: opt.ReadOnly, NoFreelistSync: true,
		NoSync: opt.NoSync, NoGrowSync: opt.NoSync})
}

// openChecked opens and locks a file that is not damaged.
func openChecked(path string, opt Options) (*os.File, error) {
	file, err := Lock(path, opt)
	if err != nil {
		return nil, err
	}
	if _, err := Read(file, opt); err != nil {
		if another := new(FormatError); !errors.As(err, &another) {
			err = &DamagedError{path, err}
		}
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Lock opens and locks the file that has the path. The lock is that of bbolt: it ends when the file is
// closed. Returns ErrInUse, or fs.ErrNotExist.
func Lock(path string, opt Options) (*os.File, error) {
	flag, how := os.O_RDWR, unix.LOCK_EX
	if opt.ReadOnly {
		flag, how = os.O_RDONLY, unix.LOCK_SH
	}
	for end := time.Now().Add(opt.Wait); ; {
		file, err := os.OpenFile(path, flag, 0)
		if err != nil {
			return nil, err
		}
		err = flock(file, how, end)
		opened, errOpened := file.Stat()
		if err := errors.Join(err, errOpened); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		// The process that had it locked may have removed or replaced it.
		if present, err := os.Stat(path); err == nil && os.SameFile(opened, present) {
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// lockRetry is the time between two attempts to lock a file.
const lockRetry = 20 * time.Millisecond

func flock(file *os.File, how int, end time.Time) error {
	for ; ; time.Sleep(lockRetry) {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(end) {
			return ErrInUse
		}
	}
}

// create creates the file, unless it exists. Another process may create it at the same time.
func create(path string, opt Options) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(CopyOf(path)); err == nil {
		return &DamagedError{path, ErrMissing}
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	err = errors.Join(fresh.Close(), initialize(fresh.Name(), opt))
	if err == nil {
		err = os.Link(fresh.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil && !opt.NoSync {
		err = syncDir(path)
	}
	return errors.Join(err, os.Remove(fresh.Name()))
}

// initialize makes an empty file a database without values.
func initialize(path string, opt Options) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, NoSync: opt.NoSync, NoGrowSync: opt.NoSync})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return Seal(tx, opt.Format) })
	return errors.Join(err, db.Close())
}

// syncDir makes the entry of a file in its directory survive a power loss.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
