package kernel

import (
	"context"
	"slices"
	"testing"
	"time"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
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
	s, err := h.DescribeSandbox(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := h.DescribeSandbox(ns.Path()); err != nil || again.ID != s.ID ||
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

// TestReadersAssignNoID reads a sandbox whose namespace has no id in the host's
// namespace. The readers find everything, and assign none.
func TestReadersAssignNoID(t *testing.T) {
	h := openTestHost(t)
	sandbox := kerneltest.Netns(t)
	kerneltest.Run(t, sandbox, "ip", "link", "add", "eth0", "type", "bridge")
	kerneltest.Run(t, sandbox, "ip", "link", "set", "eth0", "alias", plan.Mark+":web")
	links := []inspect.EndpointLink{{Endpoint: "web", Sandbox: sandbox.Path(), Name: "eth0"}}
	for range 2 {
		found, err := h.Inspect().LinkTraffic(links)
		if _, counted := found["web"]; !counted || err != nil {
			t.Errorf("the counters of the endpoints: %v, %v", found, err)
		}
		s, err := h.Inspect().DescribeSandbox(sandbox.Path())
		if err != nil || s.ID != netns.NoID || !slices.Contains(s.Links, "eth0") {
			t.Errorf("the sandbox: %+v, %v", s, err)
		}
		if id, known := h.Net().NamespaceID(sandbox.Path()); known {
			t.Errorf("the namespace has the id %d", id)
		}
	}
	// The same counters are read with an id.
	if s, err := h.DescribeSandbox(sandbox.Path()); err != nil || s.ID == netns.NoID {
		t.Errorf("the sandbox: %+v, %v", s, err)
	}
	found, err := h.Inspect().LinkTraffic(links)
	if _, counted := found["web"]; !counted || err != nil {
		t.Errorf("the counters with an id: %v, %v", found, err)
	}
}
