package kernel

import (
	"context"
	"slices"
	"testing"
	"time"

	"fairlead/internal/kernel/netns"
)

// TestWatchSandboxesReportsTheEnd deletes a namespace that Fairlead has only
// assigned an id to.
func TestWatchSandboxesReportsTheEnd(t *testing.T) {
	h := openTestHost(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone, err := h.WatchSandboxes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Inspect().DescribeSandbox(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.Inspect().DescribeSandbox(ns.Path()); err != nil || again.ID != s.ID ||
		again.Namespace != s.Namespace {
		t.Errorf("described again: %+v, %v; at first %+v", again, err, s)
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
		t.Fatal("the end of the namespace is not reported")
	}
	cancel()
	if _, more := <-gone; more {
		t.Error("the channel is not closed")
	}
}
