package kernel

import (
	"os"
	"sync"
	"testing"
)

// TestFirstThreadStays: the thread that the process began with never ends, so
// none of it may be left in a namespace that was entered; it would keep the
// namespace, and all in it, as long as we live.
func TestFirstThreadStays(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := NewNetns()
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
		t.Errorf("the first thread has gone from %s to %s, %v", before, after, err)
	}
}
