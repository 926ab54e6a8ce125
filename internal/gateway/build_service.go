package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/healthcheck"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// checkOf is a service whose servers are checked.
type checkOf struct {
	value   gateway.HealthCheck
	servers []healthcheck.Server
	via     *gateway.ServersTransport
}

func (c checkOf) equal(o checkOf) bool {
	return slices.Equal(c.servers, o.servers) && reflect.DeepEqual(c.value, o.value) && reflect.DeepEqual(c.via, o.via)
}

// service returns the handler of the service, nil if it cannot be used.
func (b *builder) service(name string) http.Handler {
	b.need("service", name)
	if h := b.kept.internal[name]; h != nil {
		return h
	}
	if s := b.kept.services[name]; s != nil {
		return s.handler
	}
	value := b.config.HTTP.Services[name]
	if value == nil {
		return nil
	}
	if b.status.Disabled("service", name) {
		return nil
	}
	if b.building[name] {
		b.status.Disable("service", name, "it contains itself")
		return nil
	}
	b.building[name] = true
	outer := b.now
	b.now = &parts{turns: new(atomic.Uint64)}
	if old := formerly(b, "service", name, b.dropped); old != nil {
		b.now.last, b.now.turns, b.now.had = old.states, old.turns, old.conditions
	}
	h, err := b.chainedService(name, value)
	if err != nil {
		b.status.Disable("service", name, err.Error())
		h, b.now.states = nil, b.now.last
	}
	b.kept.services[name] = &builtService{handler: h, needs: b.now.needs, conditions: b.now.conditions,
		check: b.now.check, states: b.now.states, turns: b.now.turns}
	b.now = outer
	return h
}

// chainedService returns the service behind its middlewares.
func (b *builder) chainedService(name string, value *gateway.Service) (h http.Handler, err error) {
	service := b.now
	failed := recovery.Object("service "+name, func() {
		if h, err = b.buildService(name, value); err == nil {
			h, err = b.chained("", value.Middlewares, h)
		}
	})
	if failed == nil {
		return h, err
	}
	// The servers that it has taken are in the conditions of the service, and are released with it.
	b.now = service
	return nil, failed
}

func (b *builder) buildService(name string, value *gateway.Service) (http.Handler, error) {
	switch {
	case value.LoadBalancer != nil:
		return b.loadBalancer(name, value.LoadBalancer)
	case value.Weighted != nil:
		return b.weighted(name, value.Weighted, false)
	case value.HighestRandomWeight != nil:
		return b.weighted(name, value.HighestRandomWeight, true)
	case value.Mirroring != nil:
		return b.mirroring(name, value.Mirroring)
	case value.Failover != nil:
		main, err := b.part(value.Failover.Service)
		if err != nil {
			return nil, err
		}
		fallback, err := b.part(value.Failover.Fallback)
		return &failover{main, fallback}, err
	}
	return nil, errors.New("it has no loadBalancer, highestRandomWeight, weighted, mirroring or failover")
}

// part returns a service that another consists of.
func (b *builder) part(name string) (http.Handler, error) {
	if h := b.service(name); h != nil {
		return h, nil
	}
	return nil, errors.New(b.serviceProblem(name))
}

// weighted returns a service that divides requests by turns, or by the addresses of clients.
func (b *builder) weighted(name string, value *gateway.Weighted, byAddress bool) (http.Handler, error) {
	if len(value.Services) == 0 {
		return nil, errors.New("it names no service")
	}
	var parts []http.Handler
	for _, s := range value.Services {
		if s.Weight != nil && *s.Weight < 0 {
			return nil, fmt.Errorf("service %s: weight %d is negative", s.Name, *s.Weight)
		}
		h, err := b.part(s.Name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, h)
	}
	if !byAddress {
		return newWeighted(name, value, parts, b.now.turns), nil
	}
	s := &rendezvous{services: parts, weights: weightsOf(value)}
	for _, part := range value.Services {
		s.names = append(s.names, part.Name)
	}
	return s, nil
}

func (b *builder) mirroring(name string, value *gateway.Mirroring) (http.Handler, error) {
	main, err := b.part(value.Service)
	if err != nil {
		return nil, err
	}
	m := &mirroring{service: main, most: -1, count: b.now.turns, body: value.MirrorBody == nil || *value.MirrorBody,
		name: name, copies: &b.copies}
	if value.MaxBodySize != nil {
		m.most = *value.MaxBodySize
	}
	for _, to := range value.Mirrors {
		if to.Percent < 0 || to.Percent > 100 {
			return nil, fmt.Errorf("mirror %s: percent %d: want 0 to 100", to.Name, to.Percent)
		}
		h, err := b.part(to.Name)
		if err != nil {
			return nil, err
		}
		m.mirrors = append(m.mirrors, mirror{h, to.Percent})
	}
	return m, nil
}

func (b *builder) loadBalancer(name string, value *gateway.LoadBalancer) (http.Handler, error) {
	transport, err := b.transport(value.ServersTransport)
	if err != nil {
		return nil, err
	}
	var places []*place
	var servers []healthcheck.Server
	for _, s := range value.Servers {
		if s.Down != "" {
			continue
		}
		if s.Service != "" {
			return nil, fmt.Errorf("virtual service %s is not in use on this host: see `fairlead service show %s`",
				s.Service, s.Service)
		}
		u, err := parseServer(s.URL)
		if err != nil {
			return nil, err
		}
		at, err := b.server(name, u, value, transport)
		if err != nil {
			return nil, err
		}
		weight := 1
		if s.Weight != nil {
			weight = *s.Weight
		}
		if weight < 0 {
			return nil, fmt.Errorf("server %s: weight %d is negative", gateway.ShownURL(s.URL), weight)
		}
		places = append(places, newPlace(at, weight, s.Fenced, s.PreservePath))
		servers = append(servers, healthcheck.Server{URL: at.url, Down: &at.Down})
	}
	if value.HealthCheck != nil {
		check, notes := value.HealthCheck.Bounded()
		for _, note := range notes {
			b.status.Warn("service", name, note)
		}
		b.now.check = &checkOf{check, servers, transport}
	} else {
		for _, s := range servers {
			s.Down.Store(false)
		}
	}
	return newBalancer(name, value, places, b.now.turns, b.observer.Metrics.OpenAtService(name), b.log)
}

// transport returns the named transport, or the default one.
func (b *builder) transport(name string) (*gateway.ServersTransport, error) {
	if name == "" || name == "default@internal" {
		return &b.static.Transport, nil
	}
	b.need("transport", name)
	if t := b.config.HTTP.ServersTransports[name]; t != nil && !b.status.Disabled("transport", name) {
		return t, nil
	}
	return nil, errors.New(status.Unusable(b.status, "transport", name, b.config.HTTP.ServersTransports))
}

// server returns the server of the URL via the transport, with its condition in the service: the
// running one if there is one with the same settings.
func (b *builder) server(
	service string, u *url.URL, of *gateway.LoadBalancer, via *gateway.ServersTransport,
) (member, error) {
	key, flush := fmt.Sprintf("%s via %s %+v", u, of.ServersTransport, *via), time.Duration(0)
	if of.ResponseForwarding != nil && of.ResponseForwarding.FlushInterval != 0 {
		flush = of.ResponseForwarding.FlushInterval
		key += " flush " + flush.String()
	}
	s := b.running[key]
	if s == nil {
		f, err := transport.New(u, via, flush)
		if err != nil {
			return member{}, err
		}
		s = &server{url: u, key: key, forward: f}
		b.running[key] = s
	}
	return member{s, b.condition(service, s)}, nil
}

// condition returns the condition of a server in the service on the way: the last one if the
// service has had the server.
func (b *builder) condition(service string, s *server) *condition.Condition {
	if c := b.now.conditions[s]; c != nil {
		return c
	}
	c := b.now.had[s]
	if c == nil {
		c = new(condition.Condition)
		c.Down.Store(len(b.wereDown) > 0 && b.wereDown[digest(service, s.key)])
	}
	if b.now.conditions == nil {
		b.now.conditions = map[*server]*condition.Condition{}
	}
	b.now.conditions[s] = c
	s.uses++
	return c
}

// release closes the servers that only dropped services have used.
func (b *builder) release() {
	for _, service := range b.dropped {
		for s := range service.conditions {
			if s.uses--; s.uses == 0 {
				delete(b.running, s.key)
				s.forward.Close()
			}
		}
	}
}
