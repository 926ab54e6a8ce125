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

// TestWith checks that a changed table equals a new one, and that the old one stays.
func TestWith(t *testing.T) {
	var all []*route.Router
	for i := range 200 {
		text := []string{"Host(`a.test`)", "PathPrefix(`/`)", "Host(`b.test`) || Host(`a.test`)", "Host(`c.test`)"}[i%4]
		all = append(all, router(t, fmt.Sprintf("r%03d", i), text, 1+i%7))
	}
	names := func(table *route.Table) (names []string) {
		for _, host := range []string{"a.test", "b.test", "c.test", "d.test"} {
			for r := range table.Candidates(&rule.Request{Host: host}) {
				names = append(names, r.Name)
			}
			names = append(names, "|")
		}
		return names
	}
	for _, n := range []int{0, 1, 7, 99} {
		before := route.NewTable(all[:100])
		old := names(before)
		got := names(before.With(all[:n], all[100:100+n]))
		if want := names(route.NewTable(all[n : 100+n])); !slices.Equal(got, want) {
			t.Errorf("%d changes: %v, want %v", n, got, want)
		}
		if !slices.Equal(names(before), old) {
			t.Errorf("%d changes: the old table has changed", n)
		}
	}
	one := route.NewTable(nil).With(nil, all[:1])
	if got := names(one.With(all[:1], nil)); !slices.Equal(got, []string{"|", "|", "|", "|"}) {
		t.Errorf("without its only router, a table has %v", got)
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
