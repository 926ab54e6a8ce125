package kernel

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"
)

// TestTheEndOfASandboxIsTold takes a namespace away that has nothing of ours in
// it but an id.
func TestTheEndOfASandboxIsTold(t *testing.T) {
	h := openTestHost(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone, err := h.WatchSandboxes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.DescribeSandbox(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.DescribeSandbox(ns.Path()); err != nil || again.ID != s.ID || again.Namespace != s.Namespace {
		t.Errorf("looked at again: %+v, %v; at first %+v", again, err, s)
	}
	if !slices.Equal(s.Links, []string{"lo"}) || s.Default4 || s.Default6 {
		t.Errorf("an empty sandbox: %+v", s)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-gone:
		if id != s.ID {
			t.Errorf("namespace %d is gone; want %d", id, s.ID)
		}
	case <-time.After(time.Minute):
		t.Fatal("the kernel does not tell that the namespace is gone")
	}
	cancel()
	if _, more := <-gone; more {
		t.Error("it watches on")
	}
}

func TestNamespacesAreToldApart(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		ns, err := NewNetns()
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
		t.Errorf("of no namespace: %v", err)
	}
}
