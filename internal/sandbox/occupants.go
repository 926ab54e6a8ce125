package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Inode identifies a network namespace for as long as the namespace exists.
type Inode struct{ Dev, Ino uint64 }

// NamespaceAt returns the inode of the network namespace at path. It returns
// an error that wraps os.ErrNotExist if there is none: a container engine that
// unmounts a namespace leaves an empty file behind for a while.
func NamespaceAt(path string) (Inode, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Inode{}, &os.PathError{Op: "open namespace", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return Inode{}, &os.PathError{Op: "read filesystem of namespace", Path: path, Err: err}
	}
	if fs.Type != unix.NSFS_MAGIC {
		return Inode{}, fmt.Errorf("%s is not a mounted namespace: %w", path, os.ErrNotExist)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Inode{}, &os.PathError{Op: "stat namespace", Path: path, Err: err}
	}
	return Inode{st.Dev, st.Ino}, nil
}

// Occupants returns one process of each network namespace that has any, and an
// error if it could not read the namespaces of some processes: then a namespace
// that is missing may have processes. Zombies are not counted.
func Occupants() (all map[Inode]int, unseen error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all = map[Inode]int{}
	for _, name := range names {
		pid, ok := asPID(name)
		if !ok {
			continue
		}
		var st unix.Stat_t
		switch err := unix.Stat("/proc/"+name+"/ns/net", &st); {
		case err == nil:
			all[Inode{st.Dev, st.Ino}] = pid
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH): // ended meanwhile, or a zombie
		default:
			unseen = fmt.Errorf("find the namespace of process %d: %w", pid, err)
		}
	}
	return all, unseen
}

// ProcessID returns an identifier of a process, PID@START, which differs from
// that of a later process with the same PID. It is empty if there is no such
// process.
func ProcessID(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	start, err := startTime(dir)
	if pid <= 0 || err != nil {
		return ""
	}
	return strconv.Itoa(pid) + startMark + start
}

// Runs reports whether the process that ProcessID identified still runs.
func Runs(id string) bool {
	text, _, _ := strings.Cut(id, startMark)
	pid, ok := asPID(text)
	return ok && ProcessID(pid) == id
}
