package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ID returns the id of a cgroup v2 directory, which is its inode number. The root of the hierarchy is an error.
func ID(path string) (uint64, error) {
	if err := onCgroup2(path); err != nil {
		return 0, err
	}
	if onCgroup2(filepath.Dir(path)) != nil {
		return 0, fmt.Errorf("cgroup %s is the root of the hierarchy, which contains every process: "+
			"name the workload's cgroup", path)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("inspect cgroup %s: %w", path, err)
	}
	return st.Ino, nil
}

// onCgroup2 returns an error if the path is not a cgroup v2 directory.
func onCgroup2(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("inspect cgroup %s: %w", path, err)
	}
	if fs.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	root, err := Root()
	if err != nil {
		return fmt.Errorf("%s is not a cgroup v2 directory, and this host has no cgroup v2 hierarchy: %w", path, err)
	}
	return fmt.Errorf("%s is not a cgroup v2 directory: use one below %s (in hybrid layouts /sys/fs/cgroup/unified)",
		path, root)
}

// kernfsHandle is the type of a file handle that contains a cgroup's id
// (FILEID_KERNFS in linux/exportfs.h, Linux 5.5).
const kernfsHandle = 0xfe

// Path returns the directory of the cgroup with that id. Returns
// os.ErrNotExist if the cgroup is gone.
func Path(id uint64) (string, error) {
	path, err := Root()
	if err != nil {
		return "", err
	}
	root, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open cgroup root: %w", err)
	}
	defer root.Close()
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("cgroup %d: %w", id, os.ErrNotExist)
	}
	if err != nil {
		return "", fmt.Errorf("open cgroup %d: %w", id, err)
	}
	defer unix.Close(fd)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// Below returns the ids of a cgroup and of all cgroups below it. It skips
// cgroups that are removed while it runs.
func Below(path string) (map[uint64]bool, error) {
	ids := map[uint64]bool{}
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && entry.IsDir() {
			if err = unix.Stat(at, &st); err == nil {
				ids[st.Ino] = true
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroups below %s: %w", path, err)
	}
	return ids, nil
}
