package traefik

import (
	"reflect"
	"slices"

	"fairlead/internal/model/gateway"
)

// joinFunc returns a service with the servers of both, or nil if the services differ in
// more. Seen has the addresses of a, which is then a copy that may change; it is empty
// if a is a value of a source.
type joinFunc[T any] func(a, b *T, seen map[string]bool) *T

// joinInto joins a service with the one that has its name.
func joinInto[T any](m *merger, object string, to map[string]*T, name string, more *T, join joinFunc[T]) bool {
	seen := m.joined[object]
	if seen == nil {
		seen = map[string]bool{}
	}
	joined := join(to[name], more, seen)
	if joined == nil {
		return false
	}
	if m.joined == nil {
		m.joined = map[string]map[string]bool{}
	}
	to[name], m.joined[object] = joined, seen
	return true
}

func joinHTTP(a, b *gateway.Service, seen map[string]bool) *gateway.Service {
	if !slices.Equal(a.Middlewares, b.Middlewares) || !sameSettings(a.LoadBalancer, b.LoadBalancer) {
		return nil
	}
	if len(seen) == 0 {
		lb := *a.LoadBalancer
		a = &gateway.Service{LoadBalancer: &lb, Middlewares: a.Middlewares}
	}
	a.LoadBalancer.Servers = joinServers(a.LoadBalancer.Servers, b.LoadBalancer.Servers, seen,
		func(s gateway.Server) string { return s.URL })
	return a
}

func joinTCP(a, b *gateway.TCPService, seen map[string]bool) *gateway.TCPService {
	if !sameSettings(a.LoadBalancer, b.LoadBalancer) {
		return nil
	}
	if len(seen) == 0 {
		lb := *a.LoadBalancer
		a = &gateway.TCPService{LoadBalancer: &lb}
	}
	a.LoadBalancer.Servers = joinServers(a.LoadBalancer.Servers, b.LoadBalancer.Servers, seen,
		func(s gateway.TCPServer) string { return s.Address })
	return a
}

func joinUDP(a, b *gateway.UDPService, seen map[string]bool) *gateway.UDPService {
	if !sameSettings(a.LoadBalancer, b.LoadBalancer) {
		return nil
	}
	if len(seen) == 0 {
		lb := *a.LoadBalancer
		a = &gateway.UDPService{LoadBalancer: &lb}
	}
	a.LoadBalancer.Servers = joinServers(a.LoadBalancer.Servers, b.LoadBalancer.Servers, seen,
		func(s gateway.UDPServer) string { return s.Address })
	return a
}

// sameSettings reports whether two load balancers differ in their servers at most.
func sameSettings[L any](a, b *L) bool {
	if a == nil || b == nil {
		return false
	}
	left, right := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range left.NumField() {
		if left.Type().Field(i).Name != "Servers" &&
			!reflect.DeepEqual(left.Field(i).Interface(), right.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// joinServers adds servers with new addresses to a list. If seen is empty, the result
// is a new list.
func joinServers[S any](list, more []S, seen map[string]bool, address func(S) string) []S {
	if len(seen) == 0 {
		list = slices.Clone(list)
		for _, s := range list {
			seen[address(s)] = true
		}
	}
	for _, s := range more {
		if !seen[address(s)] {
			seen[address(s)] = true
			list = append(list, s)
		}
	}
	return list
}
