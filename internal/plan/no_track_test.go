package plan_test

import (
	"testing"

	"fairlead/internal/plan"
)

func TestNoTrackOfFindsOnlyTablesOfFairlead(t *testing.T) {
	for _, u := range []plan.NoTrack{{Port: 4789}, {Port: 51820, Both: true}, {Port: 1}, {Port: 65535}} {
		if got, ok := plan.NoTrackOf(u.Table()); !ok || got != u {
			t.Errorf("%s is %+v, %t; want %+v", u.Table(), got, ok, u)
		}
	}
	for _, name := range []string{"fairlead", "fairlead-udp-", "fairlead-udp-mine", "fairlead-udp-04789",
		"fairlead-udp-65536", "fairlead-udp-4789-", "4789", "other-udp-4789"} {
		if u, ok := plan.NoTrackOf(name); ok {
			t.Errorf("%s is %+v; want a table of another program", name, u)
		}
	}
}
