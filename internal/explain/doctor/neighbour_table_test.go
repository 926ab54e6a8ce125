package doctor_test

import (
	"testing"

	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/facts"
)

// TestNeighbourTable checks tables that are full, were full, and have room.
func TestNeighbourTable(t *testing.T) {
	const setting = "net.ipv4.neigh.default.gc_thresh3"
	for _, c := range []struct {
		table    facts.NeighbourTable
		severity doctor.Severity // empty if there is no finding
	}{
		{facts.NeighbourTable{Setting: setting, Limit: 1024, Entries: 1000}, doctor.Problem},
		{facts.NeighbourTable{Setting: setting, Limit: 1024, Entries: 10, Overflows: 3}, doctor.Warning},
		{facts.NeighbourTable{Setting: setting, Limit: 1024, Entries: 10}, ""},
	} {
		var found []doctor.Finding
		for _, f := range doctor.Examine(doctor.Host{Facts: facts.Facts{Neighbours: []facts.NeighbourTable{c.table}}}) {
			if f.Check == "neighbour-table" {
				found = append(found, f)
			}
		}
		if c.severity == "" {
			if len(found) > 0 {
				t.Errorf("%+v: found %+v", c.table, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Severity != c.severity || found[0].Fix != "sysctl -w "+setting+"=4096" {
			t.Errorf("%+v: found %+v, want one %s", c.table, found, c.severity)
		}
	}
}
