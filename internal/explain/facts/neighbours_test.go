package facts

import "testing"

func TestNeighbourStatistics(t *testing.T) {
	const text = `entries  allocs   destroys table_fulls
000003ff 00005594 00005725 00000002
000003ff 00000000 00000000 00000010
`
	var n NeighbourTable
	if !n.count(text) || n.Entries != 1023 || n.Overflows != 18 {
		t.Errorf("%+v", n)
	}
	for _, wrong := range []string{"", "entries", "entries allocs\n1", "entries\nx"} {
		if n.count(wrong) {
			t.Errorf("%q is read as a table", wrong)
		}
	}
}
