package cluster_test

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
)

// TestUnableNode has a link of an address on one of two candidates only. That node keeps the address when it
// is drained, and a move to the other one is refused. When the other one has the link, it takes the address.
func TestUnableNode(t *testing.T) {
	v := &virtual{lan: newLAN(t), addr: netip.MustParseAddr("198.51.100.10")}
	v.joined()
	one, two := v.hosts[0], v.hosts[1]
	connect := func(h *host) {
		kerneltest.Run(t, h.ns, "ip", "link", "add", "lan", "up", "type", "veth", "peer", "name", "far")
		kerneltest.Run(t, h.ns, "ip", "link", "set", "far", "up")
	}
	connect(one)
	one.Run("cluster", "address", "add", v.addr.String()+"/24", "--link", "lan", "--hold", "3s", "--candidate", "host1",
		"--candidate", "host2")
	v.until("host1 holds the address", func() bool { return v.left(one) != "" })
	v.until("host2 has reported why it cannot", func() bool {
		return strings.Contains(strings.Join(one.node("host2").Problems, "\n"), "there is no link lan")
	})
	v.refused(one, "node host2 cannot hold it: there is no link lan", "cluster", "address", "move", v.addr.String(), "host2")
	v.refused(one, "no other candidate", "cluster", "address", "move", v.addr.String())
	one.Run("cluster", "drain", "host1")
	v.until("host1 is drained", func() bool { return one.node("host1").Drained })
	drained := v.record()
	v.until("host1 renews the address", func() bool { return v.record().Sequence > drained.Sequence+8 })
	if now := v.record(); now.Epoch != drained.Epoch || now.Holder != v.nodeID(one) || v.left(one) == "" {
		t.Errorf("no node but the drained one can hold the address: before %+v, now %+v", drained, now)
	}
	connect(two)
	v.until("host2 holds the address", func() bool { return v.left(two) != "" && v.left(one) == "" })
}
