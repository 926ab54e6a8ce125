// Package middleware turns the values of HTTP middlewares into handlers. Each
// middleware has one file in a package below, and its settings are a field of gateway.Middleware. The behaviour is the
// one that Traefik documents, where it is safe; differences are in the comments of the middleware.
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
	"reflect"
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
	// kinds makes the middleware of each field of a value.
	kinds []kind
	// path has the names of the chains around the middleware, and its own.
	path []string
	// part is what the constructor gets.
	part base.Builder
}

func (b *builder) build(name string, value *gateway.Middleware) (base.Func, error) {
	if value == nil {
		return nil, fmt.Errorf("build middleware %q: it has no settings", name)
	}
	if slices.Contains(b.path, name) {
		return nil, fmt.Errorf("build middleware %q: it contains itself: %s", name,
			strings.Join(append(slices.Clone(b.path), name), " → "))
	}
	inner := &builder{Deps: b.Deps, kinds: b.kinds, path: append(slices.Clone(b.path), name),
		part: base.Builder{Service: b.Service, Now: b.Now}}
	if made := inner.kept(value); made != nil {
		return made, nil
	}
	var found []base.Func
	for _, kind := range b.kinds {
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

// kept returns the middleware of the last configuration, nil if there is none with this value.
func (b *builder) kept(value *gateway.Middleware) base.Func {
	if b.Next == nil {
		return nil
	}
	key := b.Next.key(b.path)
	last := b.Last[key]
	if last.made == nil || last.value != value && !reflect.DeepEqual(last.value, value) {
		return nil
	}
	b.Next[key] = state{value, last.made}
	return last.made
}

// keep records a middleware for the next configuration, unless it depends on more than its
// value.
func (b *builder) keep(value *gateway.Middleware, made base.Func) {
	if b.Next != nil && !b.part.Depends {
		b.Next[b.Next.key(b.path)] = state{value, made}
	}
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
