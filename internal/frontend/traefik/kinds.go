package traefik

import (
	"reflect"

	"fairlead/internal/model/gateway"
)

// kind is a kind of objects that labels define. Its functions take pointers to objects of the kind.
type kind struct {
	name string
	// chosen means that requests choose the object, so no reference names it.
	chosen bool
	// across means that equal definitions of several owners are one object.
	across bool
	each   func(c *gateway.Config, visit func(name string, value any))
	put    func(c *gateway.Config, name string, value any)
	// match returns what the requests that a chosen object takes follow from.
	match func(value any) match
	// refer visits the references, nil if there are none in labels. clone copies a value for changes of them.
	refer func(value any, v visitor)
	clone func(value any) any
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
	routers(kindOf(router, httpRouters), referRouter, matchRouter),
	referring(balanced(kindOf(service, httpServices), sameService, func(s gateway.Server) string { return s.URL }),
		referService),
	referring(across(kindOf(middleware, httpMiddlewares)), referMiddleware),
	routers(kindOf(tcpRouter, tcpRouters), referTCPRouter, matchTCPRouter),
	balanced(kindOf(tcpService, tcpServices), sameTCPService, func(s gateway.TCPServer) string { return s.Address }),
	across(kindOf(tcpMiddleware, tcpMiddlewares)),
	routers(kindOf(udpRouter, udpRouters), referUDPRouter, matchUDPRouter),
	balanced(kindOf(udpService, udpServices), sameUDPService, func(s gateway.UDPServer) string { return s.Address }),
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

// kindOf returns the kind of the objects of a map.
func kindOf[T any](name string, of func(*gateway.Config) *map[string]*T) *kind {
	return &kind{name: name,
		each: func(c *gateway.Config, visit func(string, any)) {
			for name, value := range *of(c) {
				visit(name, value)
			}
		},
		put: func(c *gateway.Config, name string, value any) {
			to := of(c)
			if *to == nil {
				*to = map[string]*T{}
			}
			(*to)[name] = value.(*T)
		},
		same: func(a, b any) bool { return reflect.DeepEqual(a, b) },
	}
}

func across(k *kind) *kind {
	k.across = true
	return k
}

func referring[T any](k *kind, refer func(*T, visitor)) *kind {
	k.refer = func(value any, v visitor) { refer(value.(*T), v) }
	k.clone = func(value any) any { return gateway.Clone(value.(*T)) }
	return k
}

func routers[T any](k *kind, refer func(*T, visitor), of func(*T) match) *kind {
	k.chosen = true
	k.match = func(value any) match {
		m := of(value.(*T))
		m.kind = k.name
		return m
	}
	return referring(k, refer)
}

// balanced is for a kind whose objects have servers. same compares without them, address is theirs.
func balanced[S, T any, P gateway.Balanced[S, T]](k *kind, same func(a, b P) bool, address func(T) string) *kind {
	k.same = func(a, b any) bool { return same(a.(P), b.(P)) }
	k.join = func(value any, all []any) any { return value.(P).WithServers(joined[S, T, P](all, address)) }
	return k
}
