package route_test

import (
	"fmt"
	"slices"
	"testing"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
)

func router(t testing.TB, name, text string, priority int) *route.Router {
	t.Helper()
	parsed, err := rule.Parse(text, "v3")
	if err != nil {
		t.Fatal(err)
	}
	if priority == 0 {
		priority = parsed.Priority()
	}
	return &route.Router{Name: name, Rule: parsed, Priority: priority}
}

// TestOrder checks that routers are tried by priority and name, whether they are found by
// the host or not.
func TestOrder(t *testing.T) {
	table := route.NewTable([]*route.Router{
		router(t, "low", "PathPrefix(`/`)", 1),
		router(t, "b", "Host(`a.test`)", 5),
		router(t, "a", "Host(`a.test`) || Host(`b.test`)", 5),
		router(t, "middle", "PathPrefix(`/x`)", 3),
		router(t, "high", "Path(`/high`)", 100),
		router(t, "c", "Host(`c.test`)", 50),
	})
	for host, want := range map[string][]string{
		"a.test": {"high", "a", "b", "middle", "low"},
		"b.test": {"high", "a", "middle", "low"},
		"c.test": {"high", "c", "middle", "low"},
		"d.test": {"high", "middle", "low"},
	} {
		var got []string
		for r := range table.Candidates(&rule.Request{Host: host}) {
			got = append(got, r.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
	for path, want := range map[string]string{"/high": "high", "/x": "middle", "/": "low"} {
		if got := table.Find(&rule.Request{Host: "d.test", Path: path}); got == nil || got.Name != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	if n := len(table.All()); n != 6 {
		t.Errorf("All returns %d routers, want 6", n)
	}
}

// BenchmarkFind shows that the time does not grow with the number of hosts.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		var all []*route.Router
		for i := range n {
			all = append(all, router(b, fmt.Sprint(i), fmt.Sprintf("Host(`h%d.test`)", i), 0))
		}
		table := route.NewTable(all)
		q := &rule.Request{Host: fmt.Sprintf("h%d.test", n/2), Path: "/"}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if table.Find(q) == nil {
					b.Fatal("no router")
				}
			}
		})
	}
}
