package sandbox

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWatchWithoutFiles watches in a process that can open few files more: each file that the watcher needs is once the
// one that cannot be opened.
func TestWatchWithoutFiles(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(int(os.Stderr.Fd())) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	f := Finder{NetnsDir: t.TempDir()}
	for more := range 3 {
		few := limit
		few.Cur = uint64(free + more)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Watch(t.Context()); !errors.Is(err, unix.EMFILE) {
			t.Errorf("with %d more files: %v, want %v", more, err, unix.EMFILE)
		}
	}
}
