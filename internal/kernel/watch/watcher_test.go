package watch

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"
)

// noNFT is a host without nftables.
type noNFT struct{}

func (noNFT) Available() error { return errors.New("no nftables") }
func (noNFT) Port() uint32     { return 0 }

// TestTakeReturnsWhatDiffers changes the objects of a plan. After each change the
// watcher reports the objects that differ, and after a repair none.
func TestTakeReturnsWhatDiffers(t *testing.T) {
	ns := kerneltest.Netns(t)
	cache := handles.New(ns)
	t.Cleanup(cache.Close)
	reader := rtnl.New(cache)
	links := link.New(cache, reader)
	bridge := plan.Link{Name: "fl-net", Kind: plan.Bridge, MTU: 1500, Owner: "net", Group: plan.SandboxLinks,
		IPv6: plan.IPv6Fixed}
	address := plan.Address{Link: "fl-net", Prefix: netip.MustParsePrefix("192.0.2.1/24")}
	route := plan.Route{Link: "fl-net", To: netip.MustParsePrefix("198.51.100.0/24"),
		Via: netip.MustParseAddr("192.0.2.9")}
	station := plan.OverlayStation{Tunnel: "fl-net", Link: "fv-box", MAC: "02:f1:c0:00:02:01"}
	all := plan.Plan{bridge, address, route, station}
	set := func() {
		t.Helper()
		if err := errors.Join(links.SetLink(bridge), links.SetAddress(address), links.SetRoute(route)); err != nil {
			t.Fatal(err)
		}
	}
	set()
	w, err := New(t.Context(), Config{Net: reader, NFT: noNFT{}, Concerns: func(m *Matcher, o plan.Object) bool {
		switch o := o.(type) {
		case plan.Link:
			return OfLink((*Matcher).LinkDiffers)(m, o)
		case plan.Address:
			return m.AddressDiffers(o)
		case plan.Route:
			return m.RouteDiffers(o)
		}
		return false
	}})
	if err != nil {
		t.Fatal(err)
	}
	concerned := func() plan.Plan { return w.Take().Concerned(all, func(string) int { return netns.NoID }) }
	for _, step := range []struct {
		args []string
		want plan.Object
	}{
		{[]string{"route", "del", "198.51.100.0/24"}, route},
		{[]string{"addr", "del", "192.0.2.1/24", "dev", "fl-net"}, address},
		{[]string{"link", "set", "fl-net", "mtu", "1400"}, bridge},
		{[]string{"link", "set", "fl-net", "group", "default"}, bridge},
		{[]string{"link", "set", "fl-net", "down"}, bridge},
		{[]string{"link", "del", "fl-net"}, bridge},
		{[]string{"link", "del", "fl-net"}, station},
	} {
		kerneltest.Run(t, ns, "ip", step.args...)
		if got := concerned(); !slices.ContainsFunc(got, func(o plan.Object) bool { return plan.Equal(o, step.want) }) {
			t.Errorf("after ip %v, the watcher reports %v, want %v", step.args, got, step.want)
		}
		set()
		w.Take()
		set() // these events agree with the plan
		if got := concerned(); len(got) != 0 {
			t.Errorf("after the repair of ip %v, the watcher reports %v", step.args, got)
		}
	}
}

// TestUnknownLinkIsChecked matches events about a link whose name is not known yet.
func TestUnknownLinkIsChecked(t *testing.T) {
	const mac = "02:f1:c0:00:02:01"
	addr := netip.MustParseAddr("192.0.2.9")
	var seen PendingEvents
	seen.noteNeighbor(neighborAt{mac: mac}, neighborState{mac: mac, gone: true})
	seen.noteNeighbor(neighborAt{addr: addr}, neighborState{addr: addr, gone: true})
	m := &Matcher{PendingEvents: seen}
	if !m.ForwardingDiffers(plan.Forwarding{Link: "fx-net", MAC: mac, Remote: addr}) {
		t.Error("a deleted forwarding entry is not checked")
	}
	if !m.NeighborDiffers(plan.Neighbor{Link: "fl-net", Addr: addr, MAC: mac}) {
		t.Error("a deleted neighbour entry is not checked")
	}
	other := netip.MustParseAddr("192.0.2.8")
	if m.NeighborDiffers(plan.Neighbor{Link: "fl-net", Addr: other, MAC: mac}) {
		t.Error("another neighbour entry is checked")
	}
}

// TestShaperInSandboxIsWatched deletes the rate limit in a sandbox whose links existed
// before the watcher started, as after a restart of the daemon.
func TestShaperInSandboxIsWatched(t *testing.T) {
	ns, box := kerneltest.Netns(t), kerneltest.Netns(t)
	cache := handles.New(ns)
	t.Cleanup(cache.Close)
	reader := rtnl.New(cache)
	veth := plan.Link{Name: "fv-box", Kind: plan.Veth, MTU: 1500, Owner: "box", Peer: "eth0", PeerNetns: box.Path()}
	if err := link.New(cache, reader).SetLink(veth); err != nil {
		t.Fatal(err)
	}
	limit := []string{"qdisc", "replace", "dev", "eth0", "root", "handle", "fa1e:", "tbf", "rate", "8mbit",
		"burst", "80k", "latency", "50ms"}
	kerneltest.Run(t, box, "tc", limit...)
	w, err := New(t.Context(), Config{Net: reader, NFT: noNFT{}, Concerns: func(m *Matcher, o plan.Object) bool {
		return m.ShaperDiffers(o.(plan.Shaper))
	}})
	if err != nil {
		t.Fatal(err)
	}
	shaper := plan.Shaper{Netns: box.Path(), Link: "eth0", Rate: 8_000_000}
	id := func(path string) int { id, _ := reader.NamespaceID(path); return id }
	kerneltest.Run(t, box, "tc", "qdisc", "del", "dev", "eth0", "root")
	if got := w.Take().Concerned(plan.Plan{shaper}, id); len(got) != 1 {
		t.Error("the deleted shaper is not checked")
	}
	kerneltest.Run(t, box, "ip", "link", "set", "eth0", "mtu", "1400") // now the watcher knows the link
	kerneltest.Run(t, box, "tc", limit...)
	w.Take()
	kerneltest.Run(t, box, "tc", limit...)
	if got := w.Take().Concerned(plan.Plan{shaper}, id); len(got) != 0 {
		t.Errorf("the unchanged shaper is checked: %v", got)
	}
}
