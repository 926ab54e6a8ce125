package gateway

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"

	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// object identifies an object of the configuration.
type object struct{ kind, name string }

// kept has the objects of the last configuration as they were built. The next build
// replaces only those that have changed, and those that need them: with 10,000 routers,
// the change of one must cost little.
type kept struct {
	config   gateway.Config
	known    []Status
	services map[string]*builtService
	routers  map[string]*builtRouter
	// internal are the gateway's own services, which do not change.
	internal map[string]http.Handler
	// challenges are the routers that answer authorities.
	challenges []placed
	statuses   statuses
	// tls is what HTTP routers want of connections, verdicts what became of them for that.
	tls      map[string][]hosttls.Use
	verdicts map[string]hosttls.Verdict
}

func newKept() kept {
	return kept{services: map[string]*builtService{}, routers: map[string]*builtRouter{}, statuses: newStatuses(),
		tls: map[string][]hosttls.Use{}}
}

// builtService is a service with what it was built from.
type builtService struct {
	// handler is nil if the service cannot be used.
	handler    http.Handler
	needs      []object
	conditions map[*server]*condition.Condition
	check      *checkOf
	states     map[string]middleware.States
	turns      *atomic.Uint64
}

// builtRouter is a router with what it was built from.
type builtRouter struct {
	rule   *rule.Rule
	needs  []object
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
func (k *kept) changes(next *gateway.Config, known []Status) map[object]bool {
	changed := map[object]bool{}
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
func compare[T any](to map[object]bool, kind string, old, next map[string]*T, equal func(a, b *T) bool) {
	had := 0
	for name, value := range next {
		before, ok := old[name]
		if ok {
			had++
		}
		if !ok || before != value && !equal(before, value) {
			to[object{kind, name}] = true
		}
	}
	if had == len(old) {
		return
	}
	for name := range old {
		if _, ok := next[name]; !ok {
			to[object{kind, name}] = true
		}
	}
}

// compareKnown adds the objects whose known status differs.
func compareKnown(to map[object]bool, old, next []Status) {
	if reflect.DeepEqual(old, next) {
		return
	}
	byObject := func(all []Status) map[object][]Status {
		m := map[object][]Status{}
		for _, s := range all {
			key := object{s.Kind, s.Name}
			m[key] = append(m[key], s)
		}
		return m
	}
	before, now := byObject(old), byObject(next)
	for _, m := range []map[object][]Status{before, now} {
		for key := range m {
			if !reflect.DeepEqual(before[key], now[key]) {
				to[key] = true
			}
		}
	}
}

// spread adds the objects that need changed ones. Middlewares that could not be built
// are tried again, because they do not say what they need.
func (k *kept) spread(changed map[object]bool) {
	for _, s := range k.statuses.list {
		if s.Kind == "middleware" && s.State == Disabled {
			changed[object{s.Kind, s.Name}] = true
		}
	}
	needsChanged := func(needs []object) bool {
		return slices.ContainsFunc(needs, func(o object) bool { return changed[o] })
	}
	for again := true; again; {
		again = false
		for name, s := range k.services {
			key := object{"service", name}
			if len(s.needs) > 0 && !changed[key] && needsChanged(s.needs) {
				changed[key], again = true, true
			}
		}
	}
	for name, r := range k.routers {
		if needsChanged(r.needs) {
			changed[object{"router", name}] = true
		}
	}
}

// namesOfKind returns the names of the objects of one kind, in order.
func namesOfKind(objects map[object]bool, kind string) []string {
	var names []string
	for o := range maps.Keys(objects) {
		if o.kind == kind {
			names = append(names, o.name)
		}
	}
	slices.Sort(names)
	return names
}

// checkOf returns the checks of a service, nil if it has none.
func (b *builder) checkOf(name string) *checkOf {
	if s := b.kept.services[name]; s != nil && s.handler != nil {
		return s.check
	}
	return nil
}
