package arch

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Order arranges the packages of one tree in floors. A package imports packages of lower floors only.
type Order struct {
	// Tree is the path of the tree, without the module's name.
	Tree string
	// Floors list the packages by their paths below Tree, from the bottom; "." is the package at Tree. A path followed
	// by "/..." stands for a package and everything below it, whose imports of each other are free.
	Floors [][]string
}

// Orders are the orders of the large parts of the design.
var Orders = []Order{
	{
		Tree: "internal/gateway",
		Floors: [][]string{
			{"goroutine", "nonblock", "rule", "status", "shown", "condition", "sticky", "forwarded", "admission",
				"tlsconfig", "middleware/..."},
			{"metric", "healthcheck", "hosttls", "target", "opening", "tunnel", "view", "acme/..."},
			{"accesslog", "route", "h1/..."},
			{"h2", "observe", "stream", "transport"},
			{"h3", "datagram", "services"},
			{"snapshot"},
			{"build", "entries", "explain"},
			{"."},
			{"serving"},
		},
	},
	{
		Tree: "internal/frontend/dashboard",
		Floors: [][]string{{"access", "asset", "table", "picture", "history"}, {"source"}, {"page"}, {"chart", "."},
			{"atgateway"}},
	},
	{
		Tree:   "internal/gateway/acme",
		Floors: [][]string{{"dns", "acmetest"}, {"."}},
	},
	{
		Tree:   "internal/gateway/h1",
		Floors: [][]string{{"wire", "h1test"}, {".", "forward"}},
	},
	{
		Tree: "internal/gateway/middleware",
		Floors: [][]string{
			{"base", "outcome"},
			{"auth", "body", "failure", "headers", "limit", "rewrite"},
			{"."},
		},
	},
}

// Check returns the imports that break the order and the packages without a floor, in a fixed order.
func (o Order) Check(graph Graph) (broken []string) {
	for _, full := range slices.Sorted(maps.Keys(graph)) {
		pkg, ours := strings.CutPrefix(full, Module)
		if !ours || !matchAny([]string{o.Tree + "/..."}, pkg) {
			continue
		}
		floor, own := o.floor(pkg)
		if floor < 0 {
			broken = append(broken, pkg+" has no floor in the order of "+o.Tree)
			continue
		}
		for _, imported := range graph[full] {
			to, pattern := o.floor(strings.TrimPrefix(imported, Module))
			if to >= floor && pattern != own {
				broken = append(broken, fmt.Sprintf("%s imports %s, which is not on a lower floor", pkg, imported))
			}
		}
	}
	return broken
}

// floor returns the floor of a package and the pattern that lists it, -1 if there is none.
func (o Order) floor(pkg string) (int, string) {
	for i, floor := range o.Floors {
		for _, pattern := range floor {
			if matchAny([]string{path.Join(o.Tree, pattern)}, pkg) {
				return i, pattern
			}
		}
	}
	return -1, ""
}
