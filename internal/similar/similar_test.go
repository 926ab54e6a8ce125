package similar

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"Host", "HostRegexp", "Path", "PathPrefix", "Method", strings.Repeat("x", MaxLength+2)}
	for _, c := range []struct{ name, want string }{
		{"Hots", "Host"},
		{"host", "Host"},
		{"PathPrefx", "PathPrefix"},
		{"HostRegex", "HostRegexp"},
		{"mehtod", "Method"},
		{"Cookie", ""},
		{"", ""},
		{strings.Repeat("x", MaxLength+1), ""},
	} {
		got, ok := Nearest(c.name, known)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Nearest(%q) = %q, %v, want %q", c.name, got, ok, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abc", 0},
		{"kitten", "sitting", 3}, {"ab", "ba", 1}, {"host", "hots", 1}, {"router", "routers", 1},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
