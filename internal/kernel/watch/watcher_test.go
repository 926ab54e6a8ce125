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
