package cgroup

import (
	"os"
	"path/filepath"
)

// Freeze stops all processes in the cgroup, and those that join it later, until
// Thaw. It returns without waiting until they are frozen.
func Freeze(path string) error { return freeze(path, "1") }

// Thaw lets the processes of a frozen cgroup continue.
func Thaw(path string) error { return freeze(path, "0") }

func freeze(path, word string) error {
	// os.WriteFile would create the file if the cgroup no longer exists.
	f, err := os.OpenFile(filepath.Join(path, "cgroup.freeze"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(word)
	return err
}

// Populated reports whether the cgroup has processes. Processes of its child
// cgroups do not count.
func Populated(path string) (bool, error) {
	pids, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	return len(pids) > 0, err
}
