package kernel

import (
	"maps"
	"slices"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
)

// TestMultipathSets adds and deletes multipath routes in several tables: each time
// the programs' source check follows, and the watcher asks for it.
func TestMultipathSets(t *testing.T) {
	h := openTestHost(t)
	index := map[string]int{}
	for _, name := range []string{"up0", "up1", "up2", "up3"} {
		h.run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", "far-"+name)
		h.run(t, "ip", "link", "set", "far-"+name, "up")
		h.run(t, "ip", "link", "set", name, "up")
		h.run(t, "ip", "addr", "add", "2001:db8:"+name[2:]+"::1/64", "dev", name, "nodad")
		l, err := h.rtnl.LinkByName("", name)
		if err != nil {
			t.Fatal(err)
		}
		index[name] = l.Attrs().Index
	}
	if err := h.Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Del(plan.Uplinks{}); err != nil {
			t.Error(err)
		}
	})
	w, err := h.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		command string
		sets    [][]string
	}{
		{"ip route add 203.0.113.0/24 nexthop dev up0 nexthop dev up1", [][]string{{"up0", "up1"}}},
		{"ip -6 route add 2001:db8:9::/64 table 100 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
			[][]string{{"up0", "up1"}, {"up2", "up3"}}},
		{"ip route add 203.0.114.0/24 table 100 nexthop dev up3 nexthop dev up1",
			[][]string{{"up0", "up1", "up2", "up3"}}},
		{"ip route del 203.0.113.0/24", [][]string{{"up1", "up2", "up3"}}},
		{"ip route del 203.0.114.0/24 table 100", [][]string{{"up2", "up3"}}},
		{"ip -6 route del 2001:db8:9::/64 table 100", nil},
	} {
		w.Take()
		h.run(t, "sh", "-ec", step.command)
		if got := w.Take().Concerned(plan.Plan{plan.Uplinks{}}, func(string) int { return netns.NoID }); len(got) != 1 {
			t.Errorf("%s: the watcher asks for %v", step.command, got)
		}
		observe := func() plan.Plan {
			t.Helper()
			p, err := h.ObservePart(plan.Plan{plan.Uplinks{}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if got := observe(); !slices.Equal(got, plan.Plan{plan.Uplinks{Found: plan.Found{Partly: true}}}) {
			t.Errorf("%s: before it is set there are %+v", step.command, got)
		}
		if err := h.Set(plan.Uplinks{}); err != nil {
			t.Fatal(err)
		}
		if got := observe(); !slices.Equal(got, plan.Plan{plan.Uplinks{}}) {
			t.Errorf("%s: after it is set there are %+v", step.command, got)
		}
		want, got := map[int]uint32{}, map[int]uint32{}
		for _, set := range step.sets {
			for _, name := range set {
				want[index[name]] = uint32(index[set[0]])
			}
		}
		for _, i := range index {
			n, err := h.ebpf.Loaded().Sources().Multipath(i)
			if err != nil {
				t.Fatal(err)
			}
			if n != 0 {
				got[i] = n
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: the sets are %v, want %v", step.command, got, want)
		}
	}
}
