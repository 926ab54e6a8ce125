// Package cgroup finds the host's cgroup v2 hierarchy, freezes cgroups, and makes
// cgroups whose processes end together. It mounts nothing.
package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrNone means that no cgroup v2 hierarchy is mounted.
var ErrNone = errors.New("no cgroup v2 at /sys/fs/cgroup or /sys/fs/cgroup/unified: " +
	"mkdir -p /sys/fs/cgroup/unified; mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")

// Root is where cgroup v2 is mounted: alone, or beside v1.
func Root() (string, error) {
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(path, &fs); err == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return path, nil
		}
	}
	return "", ErrNone
}
