package cluster_test

import (
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/process"
)

// TestDrainedLeases drains a host. Its sandbox keeps its address and its traffic, also when its attachment is
// requested again and after a restart of the daemon, and no other sandbox gets an address there until the drain
// ends.
func TestDrainedLeases(t *testing.T) {
	l := newLAN(t)
	l.joined()
	one, two := l.hosts[0], l.hosts[1]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	for _, h := range l.hosts[:2] {
		l.until(h.name+" has the network", h.has)
	}
	first, other := l.box(one), l.box(two)
	late := process.Seen(kerneltest.Netns(t).Path())
	two.Run("cluster", "drain", "host1")
	l.until("host1 leases nothing", func() bool {
		_, err := one.Try("attach", "shop", late, "--dry-run")
		return err != nil
	})
	l.refused(one, "this host is drained, and leases no new addresses of network shop", "attach", "shop", late)
	l.refused(one, "this host is drained", "attach", "shop", late, "--address", "10.9.0.77")
	one.Run("attach", "shop", process.Seen(first.Path()))
	one.Stop()
	one.Start()
	l.until("host1 has the network", one.has)
	l.refused(one, "this host is drained", "attach", "shop", late)
	l.reaches(other, first)
	if now := l.attached(one, process.Seen(first.Path())).Endpoint.Addresses[0]; now != first.addr {
		t.Errorf("the sandbox had %s, and has %s", first.addr, now)
	}
	two.Run("cluster", "drain", "host1", "--undo")
	l.until("host1 leases addresses", func() bool { _, err := one.Try("attach", "shop", late); return err == nil })
}
