package stream

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// service returns the handler of the service, nil if it cannot be used.
func (b *builder) service(name string) Handler {
	if h, ok := b.services[name]; ok {
		return h
	}
	value := b.Config.TCP.Services[name]
	if value == nil || b.Status.Disabled(ServiceKind, name) {
		return nil
	}
	if b.building[name] {
		b.Status.Disable(ServiceKind, name, "it contains itself")
		return nil
	}
	b.building[name] = true
	var h Handler
	var err error
	// What it has taken from the last configuration is by its name, and nothing else has it.
	failed := recovery.Object(ServiceKind+" "+name, func() { h, err = b.newService(name, value) })
	if err = cmp.Or(failed, err); err != nil {
		b.Status.Disable(ServiceKind, name, err.Error())
		h = nil
	}
	b.services[name] = h
	return h
}

func (b *builder) newService(name string, value *gateway.TCPService) (Handler, error) {
	switch {
	case value.LoadBalancer != nil:
		return b.balancer(name, value.LoadBalancer)
	case value.Weighted != nil:
		return b.weighted(name, value.Weighted.Services)
	}
	return nil, errors.New("it has no loadBalancer or weighted")
}

func (b *builder) weighted(name string, services []gateway.WeightedService) (Handler, error) {
	var parts []Handler
	for _, part := range services {
		h := b.service(part.Name)
		if h == nil {
			return nil, errors.New(status.Unusable(b.Status, ServiceKind, part.Name, b.Config.TCP.Services))
		}
		parts = append(parts, h)
	}
	weights, err := Weights(services)
	return NewWeighted(parts, weights, b.next.turn(b.now, name)), err
}

// Weights returns the weights of services, of which one must be above 0.
func Weights(services []gateway.WeightedService) ([]int, error) {
	weights, positive := make([]int, len(services)), false
	for i, part := range services {
		weights[i] = 1
		if part.Weight != nil {
			weights[i] = *part.Weight
		}
		if weights[i] < 0 {
			return nil, fmt.Errorf("service %s: weight %d is negative", part.Name, weights[i])
		}
		positive = positive || weights[i] > 0
	}
	if !positive {
		return nil, errors.New("weighted names no service with a weight above 0")
	}
	return weights, nil
}

func (b *builder) balancer(name string, value *gateway.TCPLoadBalancer) (Handler, error) {
	via, err := b.transportValue(value.ServersTransport)
	if err != nil {
		return nil, err
	}
	transport, err := b.transport(value, via)
	if err != nil {
		return nil, err
	}
	to := &Balancer{Service: name, Transport: transport, Log: b.Log, Turns: b.next.turn(b.now, name)}
	for _, v := range value.Servers {
		at, err := ParseServer(v.Address, v.TLS)
		if err != nil {
			return nil, err
		}
		to.Servers = append(to.Servers, b.next.server(b.now, name, at))
	}
	if value.HealthCheck != nil {
		c, notes := value.HealthCheck.Bounded()
		for _, note := range notes {
			b.Status.Warn(ServiceKind, name, note)
		}
		c.Interval, c.Timeout = cmp.Or(c.Interval, 30*time.Second), cmp.Or(c.Timeout, 5*time.Second)
		c.UnhealthyInterval = cmp.Or(c.UnhealthyInterval, c.Interval)
		b.next.checks[name] = &check{servers: to.Servers, transport: transport, log: b.Log,
			depends: depends{c, *via}, value: Check(c)}
	}
	return to, nil
}

// transportValue returns the settings of connections to servers.
func (b *builder) transportValue(name string) (*gateway.TCPServersTransport, error) {
	if name == "" || name == "default@internal" {
		return &b.Static.TCPTransport, nil
	}
	value := b.Config.TCP.ServersTransports[name]
	if value == nil || b.Status.Disabled(TransportKind, name) {
		return nil, errors.New(status.Unusable(b.Status, TransportKind, name, b.Config.TCP.ServersTransports))
	}
	return value, nil
}

// transport returns how to connect to the servers of a load balancer. The defaults are
// Traefik's.
func (b *builder) transport(lb *gateway.TCPLoadBalancer, value *gateway.TCPServersTransport) (*Transport, error) {
	t := &Transport{DialTimeout: cmp.Or(value.DialTimeout, 30*time.Second),
		KeepAlive:        cmp.Or(value.DialKeepAlive, 15*time.Second),
		TerminationDelay: cmp.Or(value.TerminationDelay, 100*time.Millisecond)}
	if lb.TerminationDelay != nil {
		t.TerminationDelay = time.Duration(*lb.TerminationDelay) * time.Millisecond
	}
	if p := cmp.Or(lb.ProxyProtocol, value.ProxyProtocol); p != nil {
		if t.Header = cmp.Or(p.Version, 2); t.Header < 1 || t.Header > 2 {
			return nil, fmt.Errorf("proxyProtocol: version %d: want 1 or 2", p.Version)
		}
	}
	var err error
	t.TLS, err = b.ServerTLS(cmp.Or(value.TLS, &gateway.ServerTLS{}))
	return t, err
}
