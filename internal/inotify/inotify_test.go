package inotify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/sys/unix"
)

func TestEventsOfDirectory(t *testing.T) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	dir := t.TempDir()
	watch, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_DELETE_SELF)
	if err != nil {
		t.Fatal(err)
	}
	const long = "a-name-that-is-longer-than-sixteen-bytes"
	for _, name := range []string{"a", long} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "a"), filepath.Join(dir, long), dir} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	read := make([]byte, 4096)
	n, err := unix.Read(fd, read)
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{watch, unix.IN_CREATE | unix.IN_ISDIR, "a"}, {watch, unix.IN_CREATE | unix.IN_ISDIR, long},
		{watch, unix.IN_DELETE | unix.IN_ISDIR, "a"}, {watch, unix.IN_DELETE | unix.IN_ISDIR, long},
		{watch, unix.IN_DELETE_SELF, ""}, {watch, unix.IN_IGNORED, ""},
	}
	if diff := cmp.Diff(want, Events(read[:n])); diff != "" {
		t.Errorf("wanted (-), got (+):\n%s", diff)
	}
	for cut := range n {
		if got := Events(read[:cut]); len(got) >= len(want) {
			t.Errorf("%d of %d bytes give %d events", cut, n, len(got))
		}
	}
}
