package acme

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// jsonFile is a certmagic.Storage in Traefik's file, acme.json. Its values are the objects
// of the file, so that Traefik can read what the gateway has written, and the reverse:
//
//	RESOLVER/account            the account
//	RESOLVER/certificates/ID    a certificate with its key
//	RESOLVER/attempts/ID        an attempt; only the gateway has it
//
// The file is locked while it is changed, and replaced as a whole. If it cannot be replaced,
// because it is a mount of its own, it is overwritten.
type jsonFile struct {
	path string
	mu   sync.Mutex
	// content is what the file had when it was as info says.
	content map[string]*resolverData
	info    os.FileInfo
	// locked are the named locks: of this process only.
	locked map[string]chan struct{}
}

// openJSON returns the storage in the file. It creates the file, and refuses one that others
// may read, as Traefik does: it has private keys.
func openJSON(path string) (*jsonFile, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the storage: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the storage: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the storage: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("the storage %s has private keys, and others may read it (mode %03o): run "+
			"chmod 600 %s", path, mode, path)
	}
	s := &jsonFile{path: path, locked: map[string]chan struct{}{}}
	_, err = s.read()
	return s, err
}

// read returns the content of the file. The caller has locked mu, or is alone.
func (s *jsonFile) read() (map[string]*resolverData, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("read the storage: %w", err)
	}
	if s.info != nil && os.SameFile(info, s.info) && info.ModTime().Equal(s.info.ModTime()) &&
		info.Size() == s.info.Size() {
		return s.content, nil
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, fmt.Errorf("read the storage: %w", err)
	}
	all := map[string]*resolverData{}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read the storage %s: %w: it must be a file of Traefik v2 or v3, or empty", s.path, err)
	}
	if err := verify(text, all); err != nil {
		return nil, fmt.Errorf(`read the storage %s: the file is damaged: %w: restore a backup of the file, or delete `+
			`each "Sums" in it if you have changed it yourself`, s.path, err)
	}
	for name, d := range all {
		if d == nil {
			all[name] = &resolverData{}
		}
	}
	s.content, s.info = all, info
	return all, nil
}

// change locks the file, reads it, and writes what f has made of it.
func (s *jsonFile) change(f func(all map[string]*resolverData)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock, err := s.lockFile()
	if err != nil {
		return fmt.Errorf("lock the storage: %w", err)
	}
	defer lock.Close() // it ends the lock
	all, err := s.read()
	if err != nil {
		return err
	}
	s.info = nil // until the file has what f makes of the content
	f(all)
	for name, d := range all {
		d.Sums = d.sums(name)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write the storage: %w", err)
	}
	if err := s.write(text); err != nil {
		return fmt.Errorf("write the storage: %w", err)
	}
	return nil
}

// lockFile locks the file that the path names: another process may have replaced it while
// this one waited.
func (s *jsonFile) lockFile() (*os.File, error) {
	for {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		now, errNow := os.Stat(s.path)
		if err == nil && errNow == nil && os.SameFile(mine, now) {
			return f, nil
		}
		f.Close()
		if err := errors.Join(err, errNow); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// write replaces the file, or overwrites it if it is a mount of its own.
func (s *jsonFile) write(text []byte) error {
	next, err := os.CreateTemp(filepath.Dir(s.path), ".acme-*.json") // mode 0600
	if err != nil {
		return overwrite(s.path, text)
	}
	defer os.Remove(next.Name()) // fails if it was renamed
	_, err = next.Write(text)
	err = errors.Join(err, next.Sync(), next.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(next.Name(), s.path); err != nil {
		return overwrite(s.path, text)
	}
	return nil
}

func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
