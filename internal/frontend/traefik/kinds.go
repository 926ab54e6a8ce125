package traefik

import (
	"reflect"
	"slices"

	"fairlead/internal/model/gateway"
)

// kind is a kind of objects that labels define. Its functions take pointers to objects of the kind.
type kind struct {
	name string
	// chosen means that requests choose the object, so no reference names it.
	chosen bool
	// across means that equal definitions of several owners are one object.
	across bool
	// match returns what the requests that a chosen object takes follow from.
	match func(value any) match
	// same reports whether two values are equal, but for their servers.
	same func(a, b any) bool
	// join returns a copy of a value with the servers of all values, nil if the kind has no servers.
	join func(value any, all []any) any
}

// match says which requests a router takes, and before which others.
type match struct {
	kind, rule, syntax, entryPoints string
	priority                        int
	tls                             bool
}

// kinds are all kinds that labels define. The TLS store has no owner, so it is apart.
var kinds = []*kind{
	routers(router, matchRouter),
	balanced(service, sameService, func(s gateway.Server) string { return s.URL }),
	{name: middleware, across: true, same: reflect.DeepEqual},
	routers(tcpRouter, matchTCPRouter),
	balanced(tcpService, sameTCPService, func(s gateway.TCPServer) string { return s.Address }),
	{name: tcpMiddleware, across: true, same: reflect.DeepEqual},
	routers(udpRouter, matchUDPRouter),
	balanced(udpService, sameUDPService, func(s gateway.UDPServer) string { return s.Address }),
}

// kindNamed returns the kind with the name, nil if labels define no such objects.
func kindNamed(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// in returns the objects of the kind in a configuration.
func (k *kind) in(c *gateway.Config) gateway.Objects {
	all := c.Objects()
	return all[slices.IndexFunc(all, func(o gateway.Objects) bool { return o.Kind() == k.name })]
}

func routers[T any](name string, of func(*T) match) *kind {
	return &kind{name: name, chosen: true, same: reflect.DeepEqual, match: func(value any) match {
		m := of(value.(*T))
		m.kind = name
		return m
	}}
}

// balanced returns a kind whose objects have servers. same compares without them, address is theirs.
func balanced[S, T any, P gateway.Balanced[S, T]](name string, same func(a, b P) bool, address func(T) string) *kind {
	return &kind{name: name, same: func(a, b any) bool { return same(a.(P), b.(P)) },
		join: func(value any, all []any) any { return value.(P).WithServers(joined[S, T, P](all, address)) }}
}
