package arch_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"fairlead/test/arch"
)

// TestOrders checks the large parts of the project against their orders.
func TestOrders(t *testing.T) {
	graph := load(t)
	for _, order := range arch.Orders {
		for _, broken := range order.Check(graph) {
			t.Error(broken)
		}
	}
}

// TestOrdersCanFail breaks an order on a constructed graph.
func TestOrdersCanFail(t *testing.T) {
	order := arch.Order{Tree: "in", Floors: [][]string{{"low", "tree/..."}, {"."}, {"high"}}}
	broken := order.Check(arch.Graph{
		"fairlead/in":        {"fairlead/in/low", "fairlead/in/high", "fairlead/out"},
		"fairlead/in/high":   {"fairlead/in", "fairlead/in/tree/a"},
		"fairlead/in/low":    {"fairlead/in/tree/a"},
		"fairlead/in/new":    {"fairlead/in/low"},
		"fairlead/in/tree/a": {"fairlead/in/tree"},
		"fairlead/out":       {"fairlead/in/new"},
	})
	want := []string{"in imports fairlead/in/high, which is not on a lower floor",
		"in/low imports fairlead/in/tree/a, which is not on a lower floor", "in/new has no floor in the order of in"}
	if diff := cmp.Diff(want, broken); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
