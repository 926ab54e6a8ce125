// Package cgroup finds the host's cgroup v2 hierarchy, freezes cgroups, and
// creates cgroups whose processes can be killed together. It mounts nothing.
package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrNone is the error of Root and New if no cgroup v2 hierarchy is mounted.
var ErrNone = errors.New("no cgroup v2 at /sys/fs/cgroup or /sys/fs/cgroup/unified: " +
	"mkdir -p /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")

// Root returns the path where cgroup v2 is mounted: /sys/fs/cgroup, or
// /sys/fs/cgroup/unified on a host that also has cgroup v1. It returns ErrNone
// if cgroup v2 is mounted at neither.
func Root() (string, error) {
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(path, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return path, nil
		}
	}
	return "", ErrNone
}
