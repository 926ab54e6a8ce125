package traefik

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"fairlead/internal/model/gateway"
)

// merger joins the configurations of several sources of one provider. The source that
// is added first has precedence.
type merger struct {
	provider string
	// servers joins the servers of services that differ in nothing else.
	servers bool
	config  gateway.Config
	// owner has the source of each object.
	owner    map[string]string
	problems []Problem
}

func newMerger(provider string, servers bool) *merger {
	return &merger{provider: provider, servers: servers, owner: map[string]string{}}
}

// add adds the configuration of a source.
func (m *merger) add(c gateway.Config, source string) {
	to := &m.config
	mergeMap(m, router, &to.HTTP.Routers, c.HTTP.Routers, source)
	mergeMap(m, service, &to.HTTP.Services, c.HTTP.Services, source)
	mergeMap(m, middleware, &to.HTTP.Middlewares, c.HTTP.Middlewares, source)
	mergeMap(m, transport, &to.HTTP.ServersTransports, c.HTTP.ServersTransports, source)
	mergeMap(m, tcpRouter, &to.TCP.Routers, c.TCP.Routers, source)
	mergeMap(m, tcpService, &to.TCP.Services, c.TCP.Services, source)
	mergeMap(m, tcpMiddle, &to.TCP.Middlewares, c.TCP.Middlewares, source)
	mergeMap(m, tcpTransport, &to.TCP.ServersTransports, c.TCP.ServersTransports, source)
	mergeMap(m, udpRouter, &to.UDP.Routers, c.UDP.Routers, source)
	mergeMap(m, udpService, &to.UDP.Services, c.UDP.Services, source)
	mergeMap(m, tlsOptions, &to.TLS.Options, c.TLS.Options, source)
	mergeMap(m, tlsStore, &to.TLS.Stores, c.TLS.Stores, source)
	to.TLS.Certificates = append(to.TLS.Certificates, c.TLS.Certificates...)
}

// mergeMap adds the objects of one kind, in the order of their names.
func mergeMap[T any](m *merger, kind string, to *map[string]*T, from map[string]*T, source string) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		object := kind + " " + name + "@" + m.provider
		have := (*to)[name]
		switch {
		case have == nil:
			if *to == nil {
				*to = map[string]*T{}
			}
			(*to)[name], m.owner[object] = from[name], source
		case reflect.DeepEqual(have, from[name]), m.servers && joinServers(have, from[name]):
		default:
			m.problems = append(m.problems, Problem{object, source, fmt.Sprintf(
				"it is already defined with other settings by %s, whose definition stays: make both equal, or choose "+
					"another name", m.owner[object]), true})
		}
	}
}

// joinServers adds the servers of a service to those of another, if the services have
// the same settings.
func joinServers(have, more any) bool {
	switch have := have.(type) {
	case *gateway.Service:
		a, b := have.LoadBalancer, more.(*gateway.Service).LoadBalancer
		return a != nil && b != nil && slices.Equal(have.Middlewares, more.(*gateway.Service).Middlewares) &&
			joinEqual(a, b, &a.Servers, b.Servers)
	case *gateway.TCPService:
		a, b := have.LoadBalancer, more.(*gateway.TCPService).LoadBalancer
		return a != nil && b != nil && joinEqual(a, b, &a.Servers, b.Servers)
	case *gateway.UDPService:
		a, b := have.LoadBalancer, more.(*gateway.UDPService).LoadBalancer
		return a != nil && b != nil && joinEqual(a, b, &a.Servers, b.Servers)
	}
	return false
}

// joinEqual adds the servers of load balancer b to those of a, if the load balancers differ
// in the servers only.
func joinEqual[L any, S any](a, b *L, servers *[]S, more []S) bool {
	left, right := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range left.NumField() {
		if left.Type().Field(i).Name != "Servers" &&
			!reflect.DeepEqual(left.Field(i).Interface(), right.Field(i).Interface()) {
			return false
		}
	}
	for _, server := range more {
		same := func(s S) bool { return reflect.DeepEqual(s, server) }
		if !slices.ContainsFunc(*servers, same) {
			*servers = append(*servers, server)
		}
	}
	return true
}
