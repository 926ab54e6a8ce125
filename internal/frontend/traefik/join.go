package traefik

import (
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

func sameService(a, b *gateway.Service) bool {
	return slices.Equal(a.Middlewares, b.Middlewares) && sameSettings(a.LoadBalancer, b.LoadBalancer)
}

func sameTCPService(a, b *gateway.TCPService) bool {
	return sameSettings(a.LoadBalancer, b.LoadBalancer)
}

func sameUDPService(a, b *gateway.UDPService) bool {
	return sameSettings(a.LoadBalancer, b.LoadBalancer)
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

// joined returns the servers of all services, those with the same address once.
func joined[S, T any, P gateway.Balanced[S, T]](all []any, address func(T) string) (list []T) {
	seen := map[string]bool{}
	for _, value := range all {
		for _, s := range value.(P).Servers() {
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
