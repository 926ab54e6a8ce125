// Package route finds the router of a request.
package route

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/rule"
)

// Router is a router that a request can take.
type Router struct {
	// Name is qualified, NAME@PROVIDER.
	Name string
	// Service is the qualified name of its service.
	Service  string
	Rule     *rule.Rule
	Priority int
	Handler  http.Handler
	// Options are the TLS options that its connections must have, empty without TLS. Hostless says
	// that the rule matches hosts that it does not name.
	Options  string
	Hostless bool
	// Unlogged leaves its requests out of the access log.
	Unlogged bool
	// Source has the counters of its requests. If nil, they are not counted.
	Source *metric.Source
}

// Table has the routers of one kind of connection to an entry point. It does not
// change, so any number of goroutines may use it.
//
// Theory of operation. Most rules contain a host, and most gateways have many hosts
// with few routers each. Routers that can match one of certain hosts only are found by
// the request's host; the others are tried for each request. Both lists are sorted, so
// the first match in their merge is the router with the highest priority.
type Table struct {
	byHost map[string][]*Router
	others []*Router
}

// NewTable returns the table of the routers.
func NewTable(routers []*Router) *Table {
	sorted := slices.SortedFunc(slices.Values(routers), before)
	t := &Table{byHost: map[string][]*Router{}}
	for _, r := range sorted {
		hosts, ok := r.Rule.Hosts()
		if !ok {
			t.others = append(t.others, r)
			continue
		}
		for _, host := range hosts {
			if list := t.byHost[host]; len(list) == 0 || list[len(list)-1] != r {
				t.byHost[host] = append(list, r)
			}
		}
	}
	return t
}

// mostPatches is how many routers With replaces one by one.
const mostPatches = 64

// With returns the table without some routers and with others. The routers to remove are
// those that the table has, not equal ones. A few cost much less than a new table.
func (t *Table) With(removed, added []*Router) *Table {
	switch {
	case len(removed)+len(added) == 0:
		return t
	case len(removed)+len(added) > mostPatches:
		gone := map[*Router]bool{}
		for _, r := range removed {
			gone[r] = true
		}
		return NewTable(append(slices.DeleteFunc(t.All(), func(r *Router) bool { return gone[r] }), added...))
	}
	next := &Table{byHost: maps.Clone(t.byHost), others: t.others}
	for _, r := range removed {
		next.patch(r, func(list []*Router) []*Router {
			return slices.DeleteFunc(slices.Clone(list), func(o *Router) bool { return o == r })
		})
	}
	for _, r := range added {
		next.patch(r, func(list []*Router) []*Router {
			at, _ := slices.BinarySearchFunc(list, r, before)
			return slices.Insert(slices.Clone(list), at, r)
		})
	}
	return next
}

// patch replaces the lists that the router is in, or will be.
func (t *Table) patch(r *Router, change func([]*Router) []*Router) {
	hosts, ok := r.Rule.Hosts()
	if !ok {
		t.others = change(t.others)
		return
	}
	for _, host := range hosts {
		if list := change(t.byHost[host]); len(list) > 0 {
			t.byHost[host] = list
		} else {
			delete(t.byHost, host)
		}
	}
}

// before orders routers by priority, the highest first, and by name: Traefik leaves
// the order of equal priorities to chance.
func before(a, b *Router) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}

// Find returns the router with the highest priority that matches the request, nil if
// there is none.
func (t *Table) Find(r *rule.Request) *Router {
	for router := range t.Candidates(r) {
		if router.Rule.Match(r) {
			return router
		}
	}
	return nil
}

// Candidates returns the routers that are tried for the request, in order.
func (t *Table) Candidates(r *rule.Request) func(yield func(*Router) bool) {
	return func(yield func(*Router) bool) {
		hosted, others := t.byHost[r.Host], t.others
		for len(hosted)+len(others) > 0 {
			from := &others
			if len(others) == 0 || len(hosted) > 0 && before(hosted[0], others[0]) < 0 {
				from = &hosted
			}
			if !yield((*from)[0]) {
				return
			}
			*from = (*from)[1:]
		}
	}
}

// All returns all routers of the table in the order in which they are tried.
func (t *Table) All() []*Router {
	seen := map[*Router]bool{}
	all := slices.Clone(t.others)
	for _, list := range t.byHost {
		all = append(all, list...)
	}
	all = slices.DeleteFunc(all, func(r *Router) bool {
		again := seen[r]
		seen[r] = true
		return again
	})
	slices.SortFunc(all, before)
	return all
}
