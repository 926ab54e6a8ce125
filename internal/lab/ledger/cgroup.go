package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/cgroup"
)

// emptyLimit is how long killed processes may take to leave their cgroup.
const emptyLimit = 30 * time.Second

// removeTree kills the processes in a cgroup and its children, and removes them.
// It succeeds if the cgroup does not exist.
func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	var failed error
	for _, e := range entries {
		if e.IsDir() {
			failed = errors.Join(failed, removeTree(filepath.Join(path, e.Name())))
		}
	}
	if failed != nil {
		return failed
	}
	// Another laboratory may remove it at the same time.
	if err := remove(path); err != nil && !gone(path) {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

// gone reports whether nothing exists at a path.
func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// remove empties one cgroup and removes it. If another process is removing it
// (ENODEV), the kernel serializes the two.
func remove(path string) error {
	if err := empty(path); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return unix.Rmdir(path)
}

// empty kills the processes of one cgroup. It opens the events file before it
// kills, so that it cannot miss the end.
func empty(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	events, err := openIn(dir, "cgroup.events", os.O_RDONLY)
	if err != nil {
		return err
	}
	defer events.Close()
	return kill(dir, events)
}

// kill ends all processes of a cgroup and waits until it is empty.
func kill(dir, events *os.File) error {
	busy, err := cgroup.Busy(events)
	if err != nil || !busy {
		return err
	}
	f, err := openIn(dir, "cgroup.kill", os.O_WRONLY)
	if err != nil {
		return fmt.Errorf("kill its processes (needs Linux 5.14): %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString("1"); err != nil {
		return fmt.Errorf("kill its processes: %w", err)
	}
	return cgroup.AwaitEmpty(events, emptyLimit)
}

// openIn opens a file of an open directory.
func openIn(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s of cgroup %s: %w", name, dir.Name(), err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
