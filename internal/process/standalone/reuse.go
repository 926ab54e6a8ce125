package standalone

import (
	"reflect"

	values "fairlead/internal/model/gateway"
)

// Reuse replaces the objects of a configuration by those of an earlier one that are equal:
// the same pointer shows the serving process's controller that an object has not changed.
func Reuse(next, before *values.Config) {
	same(next.HTTP.Routers, before.HTTP.Routers)
	same(next.HTTP.Services, before.HTTP.Services)
	same(next.HTTP.Middlewares, before.HTTP.Middlewares)
	same(next.HTTP.ServersTransports, before.HTTP.ServersTransports)
	same(next.TCP.Routers, before.TCP.Routers)
	same(next.TCP.Services, before.TCP.Services)
	same(next.TCP.Middlewares, before.TCP.Middlewares)
	same(next.TCP.ServersTransports, before.TCP.ServersTransports)
	same(next.UDP.Routers, before.UDP.Routers)
	same(next.UDP.Services, before.UDP.Services)
	same(next.TLS.Options, before.TLS.Options)
	same(next.TLS.Stores, before.TLS.Stores)
}

func same[T any](next, before map[string]*T) {
	for name, value := range next {
		if old := before[name]; old != nil && reflect.DeepEqual(old, value) {
			next[name] = old
		}
	}
}
