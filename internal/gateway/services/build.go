package services

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"fairlead/internal/gateway/healthcheck"
	"fairlead/internal/model/gateway"
)

// Source is what a service is built from.
type Source struct {
	// Last is the state of the service before the change, nil if it is new. Next is the state after it.
	Last, Next *State
	// Part returns a service that this one consists of, Transport the settings with a name.
	Part      func(name string) (http.Handler, error)
	Transport func(name string) (*gateway.ServersTransport, error)
	// Warn records what is doubtful about the service.
	Warn func(note string)
}

// building is a service on the way.
type building struct {
	*Services
	Source
	name string
}

// Build returns the handler of a service.
func (s *Services) Build(name string, value *gateway.Service, from Source) (http.Handler, error) {
	b := &building{s, from, name}
	switch {
	case value.LoadBalancer != nil:
		return b.loadBalancer(value.LoadBalancer)
	case value.Weighted != nil:
		return b.weighted(value.Weighted, false)
	case value.HighestRandomWeight != nil:
		return b.weighted(value.HighestRandomWeight, true)
	case value.Mirroring != nil:
		return b.mirroring(value.Mirroring)
	case value.Failover != nil:
		main, err := b.Part(value.Failover.Service)
		if err != nil {
			return nil, err
		}
		fallback, err := b.Part(value.Failover.Fallback)
		return &failover{main, fallback}, err
	}
	return nil, errors.New("it has no loadBalancer, highestRandomWeight, weighted, mirroring or failover")
}

// weighted returns a service that divides requests by turns, or by the addresses of clients.
func (b *building) weighted(value *gateway.Weighted, byAddress bool) (http.Handler, error) {
	if len(value.Services) == 0 {
		return nil, errors.New("it names no service")
	}
	var parts []http.Handler
	for _, s := range value.Services {
		if s.Weight != nil && *s.Weight < 0 {
			return nil, fmt.Errorf("service %s: weight %d is negative", s.Name, *s.Weight)
		}
		h, err := b.Part(s.Name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, h)
	}
	if !byAddress {
		return newWeighted(b.name, value, parts, b.Next.turns), nil
	}
	s := &rendezvous{services: parts, weights: weightsOf(value)}
	for _, part := range value.Services {
		s.names = append(s.names, part.Name)
	}
	return s, nil
}

func (b *building) mirroring(value *gateway.Mirroring) (http.Handler, error) {
	main, err := b.Part(value.Service)
	if err != nil {
		return nil, err
	}
	m := &mirroring{service: main, most: -1, count: b.Next.turns, body: value.MirrorBody == nil || *value.MirrorBody,
		name: b.name, copies: &b.copies}
	if value.MaxBodySize != nil {
		m.most = *value.MaxBodySize
	}
	for _, to := range value.Mirrors {
		if to.Percent < 0 || to.Percent > 100 {
			return nil, fmt.Errorf("mirror %s: percent %d: want 0 to 100", to.Name, to.Percent)
		}
		h, err := b.Part(to.Name)
		if err != nil {
			return nil, err
		}
		m.mirrors = append(m.mirrors, mirror{h, to.Percent})
	}
	return m, nil
}

func (b *building) loadBalancer(value *gateway.LoadBalancer) (http.Handler, error) {
	transport, err := b.Transport(value.ServersTransport)
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
		at, err := b.server(u, value, transport)
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
			b.Warn(note)
		}
		b.Next.check = &checkOf{check, servers, transport}
	} else {
		for _, s := range servers {
			s.Down.Store(false)
		}
	}
	return newBalancer(b.name, value, places, b.Next.turns, b.metrics.OpenAtService(b.name), b.log)
}

// server returns the server of the URL via the transport, with its condition in the service: the
// running one if there is one with the same settings.
func (b *building) server(
	u *url.URL, of *gateway.LoadBalancer, via *gateway.ServersTransport,
) (member, error) {
	key, flush := fmt.Sprintf("%s via %s %+v", u, of.ServersTransport, *via), time.Duration(0)
	if of.ResponseForwarding != nil && of.ResponseForwarding.FlushInterval != 0 {
		flush = of.ResponseForwarding.FlushInterval
		key += " flush " + flush.String()
	}
	s := b.running[key]
	if s == nil {
		f, err := b.Connect(u, via, flush)
		if err != nil {
			return member{}, err
		}
		s = &server{url: u, key: key, forward: f}
		b.running[key] = s
	}
	return member{s, b.condition(b.name, s, b.Last, b.Next)}, nil
}
