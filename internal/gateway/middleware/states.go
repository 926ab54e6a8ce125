package middleware

import (
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
