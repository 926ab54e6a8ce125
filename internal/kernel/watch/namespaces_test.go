package watch

import (
	"context"
	"testing"
	"time"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"

	"golang.org/x/sys/unix"
)

// TestNamespacesReportsTheEnd deletes a namespace that has no process and no name,
// only an id in the host's namespace.
func TestNamespacesReportsTheEnd(t *testing.T) {
	host := kerneltest.Netns(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone, err := Namespaces(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	const want = 7
	handle, err := host.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.SetNetNsIdByFd(int(ns.File().Fd()), want); err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-gone:
		if id != want {
			t.Errorf("namespace %d is gone; want %d", id, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the end of the namespace is not reported")
	}
	cancel()
	if _, more := <-gone; more {
		t.Error("the channel is not closed")
	}
}
