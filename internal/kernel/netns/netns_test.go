package netns

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFirstThreadStays checks that the first thread of the process never enters
// another namespace. That thread never ends, so it would keep the namespace alive
// as long as the process runs.
func TestFirstThreadStays(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if err := ns.Do(func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
		t.Errorf("the first thread moved from %s to %s, %v", before, after, err)
	}
}

func TestIdentifyDistinguishesNamespaces(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		ns, err := New()
		if err != nil {
			t.Fatal(err)
		}
		id, err := Identify(ns.Path())
		if err != nil || seen[id] {
			t.Errorf("%s, %v; seen before: %v", id, err, seen)
		}
		seen[id] = true
		ns.Close()
	}
	if _, err := Identify(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a namespace: %v", err)
	}
}

// TestOnlyNamespacesAreOpened: a reader of the dashboard can name any path. A FIFO without a writer is refused at once.
func TestOnlyNamespacesAreOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a FIFO: %v", err)
	}
}
