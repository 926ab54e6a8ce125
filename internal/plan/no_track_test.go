package plan_test

import (
	"net/netip"
	"testing"

	"fairlead/internal/plan"
)

func TestNoTrackOfFindsOnlyTablesOfFairlead(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, u := range []plan.NoTrack{{Port: 4789}, {Port: 51820, Both: true}, {Port: 1}, {Port: 65535},
		{Port: 4789, Local: v4}, {Port: 4789, Local: v6}, {Port: 51820, Both: true, Local: v4}} {
		if got, ok := plan.NoTrackOf(u.Table()); !ok || got != u {
			t.Errorf("%s is %+v, %t; want %+v", u.Table(), got, ok, u)
		}
	}
	for _, name := range []string{"fairlead", "fairlead-udp-", "fairlead-udp-mine", "fairlead-udp-04789",
		"fairlead-udp-65536", "fairlead-udp-4789-", "4789", "other-udp-4789", "fairlead-udp-4789-c000",
		"fairlead-udp-4789-C0000201", "fairlead-udp-4789-c0000201-both"} {
		if u, ok := plan.NoTrackOf(name); ok {
			t.Errorf("%s is %+v; want a table of another program", name, u)
		}
	}
}
