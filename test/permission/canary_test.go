package permission_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead/internal/inotify"
)

// canaries are executable files that no process may open, each in the field that it is named after.
type canaries struct {
	testing.TB
	dir    string
	fd     int
	fields []string
}

func newCanaries(t testing.TB) *canaries {
	c := &canaries{TB: t, dir: t.TempDir()}
	var err error
	if c.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

// path returns the path of a new file for a field.
func (c *canaries) path(field string) string {
	c.Helper()
	file := filepath.Join(c.dir, fmt.Sprint(len(c.fields)))
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		c.Fatal(err)
	}
	c.fields = append(c.fields, field)
	return file
}

// watch begins to record accesses to the files, and to what is made beside them.
func (c *canaries) watch(directories ...string) {
	c.Helper()
	for _, dir := range append(directories, c.dir) {
		if _, err := unix.InotifyAddWatch(c.fd, dir, unix.IN_ALL_EVENTS); err != nil {
			c.Fatal(err)
		}
	}
}

// touched returns the fields whose files were opened, and the names of other files that were accessed.
func (c *canaries) touched() (all []string) {
	c.Helper()
	for buf := make([]byte, 1<<20); ; {
		n, err := unix.Read(c.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			c.Fatal(err)
		}
		for _, e := range inotify.Events(buf[:n]) {
			if e.Watch < 0 {
				c.Fatal("the kernel has dropped events")
			}
			name := e.Name
			var number int
			if _, err := fmt.Sscan(name, &number); err == nil && number < len(c.fields) {
				name = c.fields[number]
			}
			if e.Mask&unix.IN_ISDIR == 0 {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
