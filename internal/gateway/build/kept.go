package build

import (
	"maps"
	"net/http"
	"reflect"
	"slices"

	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
)

// kept has the objects of the last configuration as they were built. The next build
// replaces only those that have changed, and those that need them: with 10,000 routers,
// the change of one must cost little.
type kept struct {
	config   gateway.Config
	known    []status.Status
	services map[string]*builtService
	routers  map[string]*builtRouter
	// challenges are the routers that answer authorities.
	challenges []placed
	statuses   status.Table
	// tls is what HTTP routers want of connections, verdicts what became of them for that.
	tls      map[string][]hosttls.Use
	verdicts map[string]hosttls.Verdict
}

func newKept() kept {
	return kept{services: map[string]*builtService{}, routers: map[string]*builtRouter{}, statuses: status.NewTable(),
		tls: map[string][]hosttls.Use{}}
}

// builtService is a service with what it was built from.
type builtService struct {
	// handler is nil if the service cannot be used.
	handler http.Handler
	needs   []status.Object
	state   *services.State
	states  map[string]middleware.States
}

// builtRouter is a router with what it was built from.
type builtRouter struct {
	rule   *rule.Rule
	needs  []status.Object
	placed []placed
	tls    []hosttls.Use
	states map[string]middleware.States
}

// placed is a router in the table of an entry point.
type placed struct {
	entry  string
	secure bool
	router *route.Router
}

// changes returns the objects that must be built again, or that are gone: those that
// differ, and all that need them.
func (k *kept) changes(next *gateway.Config, known []status.Status) map[status.Object]bool {
	changed := map[status.Object]bool{}
	compare(changed, "middleware", k.config.HTTP.Middlewares, next.HTTP.Middlewares, deepEqual)
	compare(changed, "transport", k.config.HTTP.ServersTransports, next.HTTP.ServersTransports, deepEqual)
	compare(changed, "service", k.config.HTTP.Services, next.HTTP.Services, equalServices)
	compare(changed, "router", k.config.HTTP.Routers, next.HTTP.Routers, equalRouters)
	compareKnown(changed, k.known, known)
	if len(changed) > 0 {
		k.spread(changed)
	}
	return changed
}

// compare adds the objects of one kind that differ.
func compare[T any](to map[status.Object]bool, kind string, old, next map[string]*T, equal func(a, b *T) bool) {
	had := 0
	for name, value := range next {
		before, ok := old[name]
		if ok {
			had++
		}
		if !ok || before != value && !equal(before, value) {
			to[status.Object{Kind: kind, Name: name}] = true
		}
	}
	if had == len(old) {
		return
	}
	for name := range old {
		if _, ok := next[name]; !ok {
			to[status.Object{Kind: kind, Name: name}] = true
		}
	}
}

// compareKnown adds the objects whose known status differs.
func compareKnown(to map[status.Object]bool, old, next []status.Status) {
	if reflect.DeepEqual(old, next) {
		return
	}
	byObject := func(all []status.Status) map[status.Object][]status.Status {
		m := map[status.Object][]status.Status{}
		for _, s := range all {
			key := status.Object{Kind: s.Kind, Name: s.Name}
			m[key] = append(m[key], s)
		}
		return m
	}
	before, now := byObject(old), byObject(next)
	for _, m := range []map[status.Object][]status.Status{before, now} {
		for key := range m {
			if !reflect.DeepEqual(before[key], now[key]) {
				to[key] = true
			}
		}
	}
}

// spread adds the objects that need changed ones. Middlewares that could not be built
// are tried again, because they do not say what they need.
func (k *kept) spread(changed map[status.Object]bool) {
	for _, s := range k.statuses.Last() {
		if s.Kind == "middleware" && s.State == status.Disabled {
			changed[status.Object{Kind: s.Kind, Name: s.Name}] = true
		}
	}
	needsChanged := func(needs []status.Object) bool {
		return slices.ContainsFunc(needs, func(o status.Object) bool { return changed[o] })
	}
	for again := true; again; {
		again = false
		for name, s := range k.services {
			key := status.Object{Kind: "service", Name: name}
			if len(s.needs) > 0 && !changed[key] && needsChanged(s.needs) {
				changed[key], again = true, true
			}
		}
	}
	for name, r := range k.routers {
		if needsChanged(r.needs) {
			changed[status.Object{Kind: "router", Name: name}] = true
		}
	}
}

// namesOfKind returns the names of the objects of one kind, in order.
func namesOfKind(objects map[status.Object]bool, kind string) []string {
	var names []string
	for o := range maps.Keys(objects) {
		if o.Kind == kind {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return names
}
