package cgroup

import (
	"os"
	"path/filepath"
)

// Freeze holds what is in a cgroup, and whatever comes into it.
func Freeze(path string) error { return freeze(path, "1") }

// Thaw lets what is in a cgroup go on.
func Thaw(path string) error { return freeze(path, "0") }

func freeze(path, word string) error {
	// Not os.WriteFile, which makes a file: the cgroup may have gone.
	f, err := os.OpenFile(filepath.Join(path, "cgroup.freeze"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(word)
	return err
}

// Populated reports whether there are processes in a cgroup itself.
func Populated(path string) (bool, error) {
	pids, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	return len(pids) > 0, err
}
