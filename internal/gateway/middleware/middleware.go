// Package middleware turns the values of HTTP middlewares into handlers. Each
// middleware has one file in a package below, and a row in kinds.go. The behaviour is the one that Traefik documents,
// where it is safe; differences are in the comments of the middleware.
//
// Packages base and outcome have what middlewares share. The packages above them have the middlewares by what they do:
// auth, body, failure, headers, limit, rewrite. They do not import each other.
//
// A handler may change the request that it receives: its header, its URL (always by a
// new *url.URL) and its RequestURI. The entry point has cleaned the path and has removed
// the X-Forwarded headers of untrusted clients before. X-Forwarded-For is without the
// peer's address: the proxy appends it afterwards.
package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// Deps is what middlewares need of the gateway.
type Deps struct {
	// Service returns the handler of a service, for error pages.
	Service func(name string) (http.Handler, error)
	// Middleware returns another middleware and its qualified name, for chains.
	Middleware func(name string) (qualified string, value *gateway.Middleware, err error)
	// Now is the time, by default time.Now.
	Now func() time.Time
	// Last has the middlewares that the last configuration had at this place. New adds to
	// Next those that the next configuration may take. If Next is nil, none is kept.
	Last, Next States
}

// builder builds a middleware.
type builder struct {
	Deps
	// path has the names of the chains around the middleware, and its own.
	path []string
	// part is what the constructor gets.
	part base.Builder
}

// New returns the middleware of a value. It fails if the value has no field, more than
// one, or an invalid one; the error names the middleware. The caller builds one per
// router: a middleware with a state, such as a rate, does not share it with another
// router. Deps.Last and Deps.Next carry states from one configuration to the next.
func New(name string, value *gateway.Middleware, deps Deps) (func(http.Handler) http.Handler, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return (&builder{Deps: deps}).build(name, value)
}

func (b *builder) build(name string, value *gateway.Middleware) (base.Func, error) {
	if value == nil {
		return nil, fmt.Errorf("build middleware %q: it has no settings", name)
	}
	if slices.Contains(b.path, name) {
		return nil, fmt.Errorf("build middleware %q: it contains itself: %s", name,
			strings.Join(append(slices.Clone(b.path), name), " → "))
	}
	inner := &builder{Deps: b.Deps, path: append(slices.Clone(b.path), name),
		part: base.Builder{Service: b.Service, Now: b.Now}}
	if made := inner.kept(value); made != nil {
		return made, nil
	}
	var found []base.Func
	for _, kind := range kinds {
		made, err := kind(inner, value)
		if err != nil {
			return nil, fmt.Errorf("build middleware %q: %w", name, err)
		}
		if made != nil {
			found = append(found, made)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("build middleware %q: its type is missing", name)
	case 1:
		inner.keep(value, found[0])
		return found[0], nil
	}
	return nil, fmt.Errorf("build middleware %q: it has %d types: make one middleware of each", name, len(found))
}

// kind makes the middleware of one field of a value. It returns nil if the field is nil.
type kind func(*builder, *gateway.Middleware) (base.Func, error)

// of makes a kind of the field that get returns and of its constructor.
func of[T any](get func(*gateway.Middleware) *T, make func(*base.Builder, *T) (base.Func, error)) kind {
	return func(b *builder, value *gateway.Middleware) (base.Func, error) {
		field := get(value)
		if field == nil {
			return nil, nil
		}
		return make(&b.part, field)
	}
}
