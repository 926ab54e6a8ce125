package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func TestIPVSTableIsItsText(t *testing.T) {
	h := openTestHost(t)
	for range 2 { // setting it twice has no effect
		if err := h.Set(plan.IPVSTable{}); err != nil {
			t.Fatal(err)
		}
	}
	got := h.run(t, "nft", "list", "table", "inet", plan.IPVSTableName)
	for range 2 {
		if err := h.Del(plan.IPVSTable{}); err != nil {
			t.Fatal(err)
		}
	}
	h.run(t, "sh", "-c", plan.IPVSTable{}.Add()[0])
	want := h.run(t, "nft", "list", "table", "inet", plan.IPVSTableName)
	if got, want := normalizeIPVS(got), normalizeIPVS(want); got != want {
		t.Errorf("the kernel's table is\n%s\nwant:\n%s", got, want)
	}
	h.run(t, "sh", "-c", plan.IPVSTable{}.Del()[0])
}

func normalizeIPVS(listing string) string {
	return normalizeNft(strings.ReplaceAll(listing, "table inet "+plan.IPVSTableName, "table inet fairlead"))
}

// ipvsTableContent returns the table with members of every kind.
func ipvsTableContent() plan.Plan {
	return plan.Plan{
		plan.IPVSTable{},
		plan.IPVSMember{Set: plan.SetIPVSKept, Proto: model.TCP, At: netip.MustParseAddrPort("192.0.2.80:80")},
		plan.IPVSMember{Set: plan.SetIPVSMixed, Proto: model.UDP, At: netip.MustParseAddrPort("192.0.2.80:53")},
		plan.IPVSMember{Set: plan.SetIPVSHidden, Proto: model.TCP, At: netip.MustParseAddrPort("[2001:db8::80]:80")},
		plan.IPVSMember{Set: plan.SetIPVSMasqueraded, At: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.7"), 0)},
		plan.IPVSMember{Set: plan.SetIPVSMasqueraded, At: netip.AddrPortFrom(netip.MustParseAddr("fd00::7"), 0)},
		plan.IPVSMember{Set: plan.SetIPVSHairpin, Src: netip.MustParsePrefix("172.30.0.0/24"),
			Dst: netip.MustParsePrefix("172.30.0.0/24")},
		plan.IPVSMember{Set: plan.SetIPVSHairpin, Src: netip.MustParsePrefix("fd00:30::/64"),
			Dst: netip.MustParsePrefix("fd00:30::7/128")},
	}
}

func TestIPVSMembersAreReadBack(t *testing.T) {
	h := openTestHost(t)
	want := ipvsTableContent()
	for range 2 {
		for _, o := range want {
			if err := h.Set(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, observe := range []func() (plan.Plan, error){
		func() (plan.Plan, error) { return h.Observe(want, want) },
		func() (plan.Plan, error) { return h.Observe(nil, nil) }, // everything with Fairlead's mark
	} {
		got, err := observe()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range want {
			if !slices.Contains(got, o) {
				t.Errorf("%s is not observed", o.Key())
			}
		}
	}
	// The typed commands do not change what netlink has added.
	before := h.run(t, "nft", "list", "ruleset")
	for _, o := range want[1:] {
		h.run(t, "sh", "-c", o.Add()[0])
	}
	if after := h.run(t, "nft", "list", "ruleset"); after != before {
		t.Errorf("after the typed commands the ruleset is\n%s\nbefore it was\n%s", after, before)
	}
	for _, o := range slices.Backward(want) {
		for range 2 {
			if err := h.Del(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := h.run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("the ruleset is not empty:\n%s", left)
	}
}

// TestDamagedIPVSTableIsReplaced deletes a rule from the table.
func TestDamagedIPVSTableIsReplaced(t *testing.T) {
	h := openTestHost(t)
	if err := h.Set(plan.IPVSTable{}); err != nil {
		t.Fatal(err)
	}
	whole := h.run(t, "nft", "list", "ruleset")
	h.run(t, "nft", "flush", "chain", "inet", plan.IPVSTableName, "past")
	if found, err := h.ObservePart(plan.Plan{plan.IPVSTable{}}); err != nil || len(found) != 0 {
		t.Errorf("the damaged table is observed as intact: %v, %v", found, err)
	}
	if err := h.Set(plan.IPVSTable{}); err != nil {
		t.Fatal(err)
	}
	if now := h.run(t, "nft", "list", "ruleset"); now != whole {
		t.Errorf("the table is\n%s\nwant\n%s", now, whole)
	}
}

func TestLocalRoutes(t *testing.T) {
	h := openTestHost(t)
	routes := func() string {
		return h.run(t, "sh", "-c", "ip route show table local; ip -6 route show table local")
	}
	// An address on a link already has a local route.
	h.run(t, "ip", "addr", "add", "192.0.2.81/32", "dev", "lo")
	before := routes()
	want := plan.Plan{plan.LocalRoute{Addr: netip.MustParseAddr("192.0.2.80")},
		plan.LocalRoute{Addr: netip.MustParseAddr("192.0.2.81")},
		plan.LocalRoute{Addr: netip.MustParseAddr("2001:db8::80")}}
	for range 2 {
		for _, o := range want {
			if err := h.Set(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	made := routes()
	for _, asked := range []plan.Plan{want, nil} {
		got, err := h.Observe(asked, asked)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range want {
			if !slices.Contains(got, o) {
				t.Errorf("%s is not observed", o.Key())
			}
		}
	}
	if differing, err := h.links.LocalRoutesDiffer(); err != nil || differing {
		t.Errorf("LocalRoutesDiffer reports existing routes: %v", err)
	}
	h.run(t, "sh", "-c", want[0].Del()[0])
	if differing, err := h.links.LocalRoutesDiffer(); err != nil || !differing {
		t.Errorf("LocalRoutesDiffer does not report the deleted route: %v", err)
	}
	h.run(t, "sh", "-c", want[0].Add()[0])
	if now := routes(); now != made {
		t.Errorf("after the typed command the routes are\n%s\nwant\n%s", now, made)
	}
	for range 2 {
		for _, o := range want {
			if err := h.Del(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := routes(); after != before {
		t.Errorf("the routes are\n%s\nbefore they were\n%s", after, before)
	}
}
