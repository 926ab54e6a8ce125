package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"fairlead/internal/kernel"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by a command in the sandbox's network namespace;
// it returns only when that fails. The command has the host's files, but sees
// in /sys the devices of the namespace, as `ip netns exec` does; unlike there,
// what is mounted below /sys (cgroups, bpffs) stays.
func (s Sandbox) Exec(path string, args, env []string) error {
	ns, err := kernel.OpenNetns(s.Path)
	if err == nil {
		defer ns.Close()
		var id string
		id, err = kernel.Identify(ns.Path())
		if err == nil && id != namespace(s) {
			err = ErrAbsent // it has ended since it was found
		}
	}
	if err == nil {
		err = ns.Do(func() error {
			if err := ownSys(); err != nil {
				return fmt.Errorf("mount the namespace's /sys: %w", err)
			}
			return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, env)}
		})
	}
	return fmt.Errorf("run a command in %s: %w", s.Ref, err)
}

// ownSys gives the calling thread a mount namespace in which /sys is that of
// its network namespace.
func ownSys() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// What the host mounts from now on shows here, too, but not vice versa.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	below, err := mountsBelowSys()
	if err != nil {
		return err
	}
	inUse := make([]int, len(below))
	for i, path := range below {
		if inUse[i], err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
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
		err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", inUse[i]), path, "", unix.MS_MOVE, "")
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// mountsBelowSys lists the mount points below /sys, without those below
// another of them.
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
