package middleware

import (
	"reflect"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// States are the middlewares of one place, for example a router at an entry point, with
// what they have counted: rates, requests in flight, failures. The next configuration
// takes from them the middlewares whose values are the same. Otherwise each change would
// let clients begin anew, and whoever can cause changes could evade the limits.
type States map[string]state

// state is a middleware that was built, and its value.
type state struct {
	value *gateway.Middleware
	made  base.Func
}

// key returns the key of the middleware at the end of the path of chains. One that a place
// has twice has two states. A key has no owners, because the name of a middleware has one while
// containers of others define the name, too: they must not change what a limit has counted.
func (s States) key(path []string) string {
	var key string
	for i, name := range path {
		if i > 0 {
			key += "\x00"
		}
		key += gateway.WithoutOwner(name)
	}
	for s[key].made != nil {
		key += "\x00"
	}
	return key
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
