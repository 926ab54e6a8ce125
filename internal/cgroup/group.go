package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killFile exists since Linux 5.14.
const killFile = "cgroup.kill"

// Group is a cgroup that this process has created. The process holds a lock on
// the directory: a group without a lock was abandoned by a process that ended.
type Group struct {
	// Path is the cgroup's directory.
	Path string
	// Dir is the same directory, open and locked.
	Dir *os.File
}

// New creates a cgroup directly below the root, so that it is never inside
// another process's group. Before that, it removes abandoned groups whose names
// start with prefix, and kills their processes. New locks the root while it
// runs, so that no other process treats a group that is not locked yet as
// abandoned. It returns ErrNone if no cgroup v2 is mounted, and an error before
// Linux 5.14.
func New(prefix string) (*Group, error) {
	path, err := Root()
	if err != nil {
		return nil, err
	}
	root, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open cgroup root: %w", err)
	}
	defer root.Close()
	if err := unix.Flock(int(root.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock cgroup root: %w", err)
	}
	if err := removeAbandoned(root, prefix); err != nil {
		return nil, err
	}
	// A process in another PID namespace may have the same process id.
	g := &Group{}
	if g.Path, err = os.MkdirTemp(path, fmt.Sprint(prefix, os.Getpid(), "-")); err != nil {
		return nil, fmt.Errorf("create cgroup (root is needed): %w", err)
	}
	if _, err := os.Stat(filepath.Join(g.Path, killFile)); err != nil {
		return nil, errors.Join(fmt.Errorf("kill cgroups: %w: Linux 5.14 or newer is needed", err), os.Remove(g.Path))
	}
	if g.Dir, err = lock(g.Path); err != nil {
		return nil, errors.Join(err, os.Remove(g.Path))
	}
	return g, nil
}

// lock opens and locks a directory. It returns unix.EWOULDBLOCK if the process
// that owns the group still runs.
func lock(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock cgroup %s: %w", path, err)
	}
	return dir, nil
}

// removeAbandoned kills the processes of the groups whose owners ended, and
// removes the groups.
func removeAbandoned(root *os.File, prefix string) error {
	entries, err := os.ReadDir(root.Name())
	if err != nil {
		return fmt.Errorf("list cgroups: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		path := filepath.Join(root.Name(), e.Name())
		dir, err := lock(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := remove(path); !errors.Is(err, os.ErrNotExist) { // its owner may have removed it meanwhile
			errs = append(errs, err)
		}
		errs = append(errs, dir.Close())
	}
	return errors.Join(errs...)
}

// Kill kills all processes in the cgroup and in its child cgroups. It does not
// wait until they have ended.
func (g *Group) Kill() error { return kill(g.Path) }

// Close kills all processes in the cgroup and in its child cgroups, waits until
// they have ended, and removes the cgroups.
func (g *Group) Close() error { return errors.Join(remove(g.Path), g.Dir.Close()) }

// remove kills the processes in a cgroup and its child cgroups, and removes
// the cgroups.
func remove(path string) error {
	if err := killAndWait(path); err != nil {
		return fmt.Errorf("kill the processes in %s: %w", path, err)
	}
	var below []string
	err := filepath.WalkDir(path, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			below = append(below, path)
		}
		return err
	})
	for i := range below {
		err = errors.Join(err, unix.Rmdir(below[len(below)-1-i]))
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

func kill(path string) error {
	return os.WriteFile(filepath.Join(path, killFile), []byte("1"), 0)
}

// killLimit is how long killed processes have to end: the kernel may have to finish a call for them.
const killLimit = time.Minute

// killAndWait kills the processes and waits until they have ended.
func killAndWait(path string) error {
	if err := kill(path); err != nil {
		return err
	}
	return WaitEmpty(path, killLimit)
}
