package kernel

import (
	"slices"
	"testing"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDeletedUplinkIsIgnored deletes a link after the uplinks are listed and before
// the program is attached, as happens with links of container engines.
func TestDeletedUplinkIsIgnored(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	setUplinks(t, h)
	found := func() plan.Plan {
		t.Helper()
		p, err := h.ObservePart(plan.Plan{plan.Uplinks{}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	h.run(t, "ip", "link", "add", "up1", "type", "veth", "peer", "name", "far1")
	h.run(t, "ip", "link", "add", "up2", "type", "veth", "peer", "name", "far2")
	if got := found(); !slices.Equal(got, plan.Plan{plan.Uplinks{Found: plan.Found{Partly: true}}}) {
		t.Errorf("with new links, observed %+v", got)
	}
	links, err := h.ebpf.Uplinks()
	if err != nil {
		t.Fatal(err)
	}
	h.run(t, "ip", "link", "del", "up1")
	p, err := h.ebpf.Datapath()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.ebpf.AttachUplinks(p, links); err != nil {
		t.Error(err)
	}
	if got := found(); !slices.Equal(got, plan.Plan{plan.Uplinks{}}) {
		t.Errorf("after one was deleted, observed %+v", got)
	}
}

// TestProgramDoesNotMoveWithItsLink moves a link to another namespace, as container engines
// do with links that they have just created. The program must not stay at the link: there,
// it would take packets to the sandbox's own ports.
func TestProgramDoesNotMoveWithItsLink(t *testing.T) {
	h, sandbox := openTestHost(t), openTestHost(t)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	setUplinks(t, h)
	l, err := h.rtnl.LinkByName("", "far0")
	if err != nil {
		t.Fatal(err)
	}
	handle, err := h.ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.LinkSetNsFd(l, int(sandbox.ns.File().Fd())); err != nil {
		t.Fatal(err)
	}
	want := plan.Plan{plan.Uplinks{}}
	if got, err := h.ObservePart(want); err != nil || !slices.Equal(got, want) {
		t.Errorf("in the host's namespace: %+v, %v", got, err)
	}
	if found, err := sandbox.inspect.Foreign(nil); err != nil || len(found) > 0 {
		t.Errorf("in the other namespace: %v, %v", found, err)
	}
	moved, err := sandbox.ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	if l, err = moved.LinkByName("far0"); err != nil {
		t.Fatal(err)
	}
	// Before Linux 6.6, the program is a filter of a qdisc. Without a qdisc, the list fails.
	if found, err := moved.FilterList(l, netlink.HANDLE_MIN_INGRESS); err == nil && len(found) > 0 {
		t.Errorf("in the other namespace: %v", found)
	}
}

// TestEndOfOwnLinkIsNoUplink creates the link of an external endpoint, whose other end a
// container engine moves into the sandbox.
func TestEndOfOwnLinkIsNoUplink(t *testing.T) {
	h := openTestHost(t)
	h.run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "far0")
	if err := h.Set(plan.Link{Kind: plan.Veth, Name: "fl-box", MTU: 1500, Owner: "box", Peer: "fd-box",
		Inside: true}); err != nil {
		t.Fatal(err)
	}
	links, err := h.ebpf.Uplinks()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	if want := []string{"far0", "up0"}; !slices.Equal(names, want) {
		t.Errorf("uplinks are %v, want %v", names, want)
	}
}

// setUplinks attaches the program to the host's uplinks until the test ends.
func setUplinks(t *testing.T, h *Host) {
	t.Helper()
	if err := h.Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Del(plan.Uplinks{}); err != nil {
			t.Error(err)
		}
	})
}
