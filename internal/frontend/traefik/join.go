package traefik

import (
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// pool has the functions for services of one kind, which consist of settings and servers.
type pool[T any] struct {
	same func(a, b *T) bool
	join func(value *T, all []any) *T
}

var (
	httpServers = pool[gateway.Service]{
		same: func(a, b *gateway.Service) bool {
			return slices.Equal(a.Middlewares, b.Middlewares) && sameSettings(a.LoadBalancer, b.LoadBalancer)
		},
		join: func(s *gateway.Service, all []any) *gateway.Service {
			lb := *s.LoadBalancer
			lb.Servers = joined(all, func(s *gateway.Service) []gateway.Server { return s.LoadBalancer.Servers },
				func(s gateway.Server) string { return s.URL })
			return &gateway.Service{LoadBalancer: &lb, Middlewares: s.Middlewares}
		},
	}
	tcpServers = pool[gateway.TCPService]{
		same: func(a, b *gateway.TCPService) bool { return sameSettings(a.LoadBalancer, b.LoadBalancer) },
		join: func(s *gateway.TCPService, all []any) *gateway.TCPService {
			lb := *s.LoadBalancer
			lb.Servers = joined(all, func(s *gateway.TCPService) []gateway.TCPServer { return s.LoadBalancer.Servers },
				func(s gateway.TCPServer) string { return s.Address })
			return &gateway.TCPService{LoadBalancer: &lb}
		},
	}
	udpServers = pool[gateway.UDPService]{
		same: func(a, b *gateway.UDPService) bool { return sameSettings(a.LoadBalancer, b.LoadBalancer) },
		join: func(s *gateway.UDPService, all []any) *gateway.UDPService {
			lb := *s.LoadBalancer
			lb.Servers = joined(all, func(s *gateway.UDPService) []gateway.UDPServer { return s.LoadBalancer.Servers },
				func(s gateway.UDPServer) string { return s.Address })
			return &gateway.UDPService{LoadBalancer: &lb}
		},
	}
)

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

// joined returns the servers of all services, those with the same address once.
func joined[T, S any](all []any, servers func(*T) []S, address func(S) string) (list []S) {
	seen := map[string]bool{}
	for _, value := range all {
		for _, s := range servers(value.(*T)) {
			if !seen[address(s)] {
				seen[address(s)] = true
				list = append(list, s)
			}
		}
	}
	return list
}

func matchRouter(r *gateway.Router) match {
	return match{rule: r.Rule, syntax: r.RuleSyntax, priority: r.Priority, tls: r.TLS != nil,
		entryPoints: atEntryPoints(r.EntryPoints)}
}

func matchTCPRouter(r *gateway.TCPRouter) match {
	return match{rule: r.Rule, syntax: r.RuleSyntax, priority: r.Priority, tls: r.TLS != nil,
		entryPoints: atEntryPoints(r.EntryPoints)}
}

func matchUDPRouter(r *gateway.UDPRouter) match {
	return match{entryPoints: atEntryPoints(r.EntryPoints)}
}

// atEntryPoints returns the same text for the same entry points in any order.
func atEntryPoints(names []string) string {
	if len(names) > 1 {
		names = slices.Sorted(slices.Values(names))
	}
	return strings.Join(names, ",")
}
