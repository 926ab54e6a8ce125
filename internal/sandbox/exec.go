package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// Exec replaces this process with a command in the sandbox's network namespace.
// It returns only on failure. The error wraps ErrAbsent if the sandbox has ended,
// and an *os.PathError with the Op "exec" if the command cannot be executed. The
// command has the host's files, but its /sys shows the devices of the namespace, as
// with `ip netns exec`. Unlike there, filesystems mounted below /sys (cgroups, bpffs)
// stay mounted.
func (s Sandbox) Exec(path string, args, env []string) error {
	ns, err := netns.Open(s.Path)
	if err == nil {
		defer ns.Close()
		var id string
		id, err = netns.Identify(ns.Path())
		if err == nil && id != namespace(s) {
			err = ErrAbsent // it has ended since it was found
		}
	}
	if err == nil {
		err = ns.Do(func() error {
			if err := remountSys(); err != nil {
				return fmt.Errorf("mount the namespace's /sys: %w", err)
			}
			return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, env)}
		})
	}
	return fmt.Errorf("run a command in %s: %w", s.Ref, err)
}

// remountSys gives the calling thread a new mount namespace in which /sys shows
// the thread's network namespace.
func remountSys() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// Later mounts of the host propagate to this namespace, but not vice versa.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	below, err := mountsBelowSys()
	if err != nil {
		return err
	}
	fds := make([]int, len(below))
	for i, path := range below {
		if fds[i], err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	var old unix.Statfs_t
	if unix.Statfs("/sys", &old) == nil && old.Flags&unix.ST_RDONLY != 0 {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", flags, ""); err != nil {
		return err
	}
	for i, path := range below {
		err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", fds[i]), path, "", unix.MS_MOVE, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// mountsBelowSys returns the mount points below /sys. It omits mount points
// inside another one of the list.
func mountsBelowSys() ([]string, error) {
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line) // the fifth is the mount point
		if len(fields) < 5 || !strings.HasPrefix(fields[4], "/sys/") {
			continue
		}
		if n := len(below); n == 0 || fields[4] != below[n-1] && !strings.HasPrefix(fields[4], below[n-1]+"/") {
			below = append(below, fields[4])
		}
	}
	return below, nil
}
