package build

import (
	"reflect"
	"slices"

	"fairlead/internal/model/gateway"
)

// The functions below compare all fields of the values that a configuration has by the
// thousand; reflect.DeepEqual would need most of the time of a change.

func equalRouters(a, b *gateway.Router) bool {
	return a.Service == b.Service && a.Rule == b.Rule && a.RuleSyntax == b.RuleSyntax && a.Priority == b.Priority &&
		slices.Equal(a.EntryPoints, b.EntryPoints) && slices.Equal(a.Middlewares, b.Middlewares) &&
		deepEqual(a.TLS, b.TLS) && deepEqual(a.Observability, b.Observability)
}

func equalServices(a, b *gateway.Service) bool {
	return equalBalancers(a.LoadBalancer, b.LoadBalancer) && slices.Equal(a.Middlewares, b.Middlewares) &&
		deepEqual(a.Weighted, b.Weighted) && deepEqual(a.HighestRandomWeight, b.HighestRandomWeight) &&
		deepEqual(a.Mirroring, b.Mirroring) && deepEqual(a.Failover, b.Failover)
}

func equalBalancers(a, b *gateway.LoadBalancer) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	return a.Strategy == b.Strategy && a.ServersTransport == b.ServersTransport &&
		slices.EqualFunc(a.Servers, b.Servers, equalServers) && deepEqual(a.Sticky, b.Sticky) &&
		deepEqual(a.HealthCheck, b.HealthCheck) && deepEqual(a.PassiveHealthCheck, b.PassiveHealthCheck) &&
		deepEqual(a.PassHostHeader, b.PassHostHeader) && deepEqual(a.ResponseForwarding, b.ResponseForwarding)
}

func equalServers(a, b gateway.Server) bool {
	return a.URL == b.URL && a.Scheme == b.Scheme && a.Port == b.Port && deepEqual(a.Weight, b.Weight) &&
		a.PreservePath == b.PreservePath && a.Fenced == b.Fenced && a.Down == b.Down && a.Service == b.Service &&
		a.Label == b.Label && a.Name == b.Name && a.Network == b.Network
}

// deepEqual compares values that are seldom set, or few.
func deepEqual[T any](a, b *T) bool { return a == b || reflect.DeepEqual(a, b) }
