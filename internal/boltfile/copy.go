package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"
)

// CopyOf returns the path of the copy of a file.
func CopyOf(path string) string { return path + ".copy" }

// Copy makes the copy of a database what the database is now. It replaces the copy only if the new one is not
// damaged.
func Copy(db *bbolt.DB, opt Options) error {
	to := CopyOf(db.Path())
	if err := writeCopy(db, to+".new", opt); err != nil {
		return fmt.Errorf("copy %s: %w", db.Path(), errors.Join(err, Remove(to+".new")))
	}
	if err := os.Rename(to+".new", to); err != nil {
		return fmt.Errorf("copy %s: %w", db.Path(), err)
	}
	if opt.NoSync {
		return nil
	}
	return syncDir(to)
}

func writeCopy(db *bbolt.DB, to string, opt Options) error {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(file)
		return err
	})
	if err == nil && !opt.NoSync {
		err = file.Sync()
	}
	if err == nil {
		_, err = Read(file, opt)
	}
	return errors.Join(err, file.Close())
}

// CopyIsCurrent reports whether the copy of a database has its values.
func CopyIsCurrent(db *bbolt.DB, opt Options) bool {
	file, err := os.Open(CopyOf(db.Path()))
	if err != nil {
		return false
	}
	defer file.Close()
	is, err := Read(file, opt)
	if err != nil {
		return false
	}
	current := false
	err = db.View(func(tx *bbolt.Tx) error {
		c, _ := decodeContents(tx.Bucket(metaTable).Get(contentsKey))
		current = c == is.contents
		return nil
	})
	return err == nil && current
}

// Restore makes the path's file a copy of its copy. The damaged file, if there is one, is kept under the path
// kept. The caller has it locked.
func Restore(path, kept string) error {
	text, err := os.ReadFile(CopyOf(path))
	if err != nil {
		return err
	}
	if err := os.Link(path, kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(path)
}

// Remove removes a file. It succeeds if there is none.
func Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
