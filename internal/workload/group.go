package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/cgroup"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// prefix marks our cgroups, directly below the root so that no workload is in
// another's.
const prefix = plan.Mark + "-run-"

// group is the cgroup of a workload. The lock on its directory says that its
// owner lives.
type group struct {
	path string
	dir  *os.File
}

// newGroup makes a cgroup, and first removes those of owners that are gone.
// The root is locked meanwhile, so that nobody takes one that is not yet
// locked for abandoned.
func newGroup() (*group, error) {
	path, err := cgroup.Root()
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
	if err := sweep(root); err != nil {
		return nil, err
	}
	// In another PID namespace there may be one with our process id.
	g := &group{}
	if g.path, err = os.MkdirTemp(path, fmt.Sprint(prefix, os.Getpid(), "-")); err != nil {
		return nil, fmt.Errorf("make cgroup (root is needed): %w", err)
	}
	if g.dir, err = lock(g.path); err != nil {
		return nil, errors.Join(err, os.Remove(g.path))
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
func sweep(root *os.File) error {
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

// close removes the cgroup with all that still runs in it.
func (g *group) close() error { return errors.Join(remove(g.path), g.dir.Close()) }

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

// empty kills the processes (cgroup.kill is of Linux 5.14) and waits for their
// end, which the kernel tells by cgroup.events.
func empty(path string) error {
	events, err := os.Open(filepath.Join(path, "cgroup.events"))
	if err != nil {
		return err
	}
	defer events.Close()
	if err := os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0); err != nil {
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
