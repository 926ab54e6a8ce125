package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// killFile is of Linux 5.14.
const killFile = "cgroup.kill"

// Group is a cgroup that this process has made. The lock on its directory says
// that the process runs: a group that is not locked is abandoned.
type Group struct {
	// Path is the directory, Dir the same directory opened.
	Path string
	Dir  *os.File
}

// New makes a cgroup directly below the root, so that none is in another's, and
// first removes abandoned ones whose names have the same prefix. It returns
// ErrNone if no cgroup v2 is mounted, and an error before Linux 5.14. The root is locked meanwhile, so that
// another process does not take a group that is not yet locked for abandoned.
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
	if err := sweep(root, prefix); err != nil {
		return nil, err
	}
	// In another PID namespace there may be one with our process id.
	g := &Group{}
	if g.Path, err = os.MkdirTemp(path, fmt.Sprint(prefix, os.Getpid(), "-")); err != nil {
		return nil, fmt.Errorf("make cgroup (root is needed): %w", err)
	}
	if _, err := os.Stat(filepath.Join(g.Path, killFile)); err != nil {
		return nil, errors.Join(fmt.Errorf("kill cgroups: %w: Linux 5.14 or newer is needed", err), os.Remove(g.Path))
	}
	if g.Dir, err = lock(g.Path); err != nil {
		return nil, errors.Join(err, os.Remove(g.Path))
	}
	return g, nil
}

// lock opens and locks a directory. The error is unix.EWOULDBLOCK when its
// owner lives.
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

// sweep removes the cgroups of owners that were killed, with all that still
// runs in them.
func sweep(root *os.File, prefix string) error {
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
		if err := remove(path); !errors.Is(err, os.ErrNotExist) { // its owner was just removing it
			errs = append(errs, err)
		}
		errs = append(errs, dir.Close())
	}
	return errors.Join(errs...)
}

// Kill kills all processes in the cgroup and below it. It does not wait for their
// end.
func (g *Group) Kill() error { return kill(g.Path) }

// Close kills what still runs in the cgroup, waits for its end and removes the
// cgroup.
func (g *Group) Close() error { return errors.Join(remove(g.Path), g.Dir.Close()) }

// remove ends what runs in a cgroup and below it, and removes it.
func remove(path string) error {
	if err := empty(path); err != nil {
		return fmt.Errorf("end the processes in %s: %w", path, err)
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

// empty kills the processes and waits for their end, which the kernel reports
// in cgroup.events.
func empty(path string) error {
	events, err := os.Open(filepath.Join(path, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	if err := kill(path); err != nil {
		return err
	}
	for {
		text := make([]byte, 128)
		n, err := events.ReadAt(text, 0)
		if n == 0 {
			return err
		}
		if strings.Contains(string(text[:n]), "populated 0") {
			return nil
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
