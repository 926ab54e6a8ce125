package spec

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// gateway sets the HTTP gateway in the draft, or removes that of the set.
func (t *Draft) gateway() {
	have := t.desired.Gateway
	switch {
	case t.spec.Gateway == nil && have != nil && have.Origin == t.origin:
		t.desired.Gateway = nil
		return
	case t.spec.Gateway == nil:
		return
	case have != nil && have.Origin != t.origin && have.Equal(ownedGateway(*t.spec.Gateway, *have)):
		t.noteUnchanged("gateway", "of the host", have.Origin)
		return
	case have != nil && have.Origin != t.origin:
		t.mistake("gateway", fmt.Errorf("gateway: a host has one gateway, and %s: leave it out, or remove the other",
			createdBy(have.Origin)))
		return
	}
	g := *t.spec.Gateway
	g.Origin = t.origin
	t.gatewayServices(g.Config)
	if t.CheckGateway == nil {
		t.mistake("gateway", errors.New("gateway: this daemon runs no gateway"))
		return
	}
	mistakes, notes := t.CheckGateway(g)
	t.mistakes, t.Notes = append(t.mistakes, mistakes...), append(t.Notes, notes...)
	if !have.Equal(&g) {
		t.desired.Gateway = &g
	}
}

// gatewayServices checks the servers of the gateway's services.
func (t *Draft) gatewayServices(c gateway.Config) {
	for name, s := range sorted(c.HTTP.Services) {
		for _, s := range s.Servers() {
			err := s.Validate()
			if err == nil && s.Service != "" {
				err = t.sharedPool(s.Service, c.HTTP.Services[name].LoadBalancer.HealthCheck != nil)
			}
			t.serverMistake("http", name, cmp.Or(s.URL, s.Service, s.Label, s.Name, s.Network, "without url"), err)
		}
	}
	for name, s := range sorted(c.TCP.Services) {
		for _, s := range s.Servers() {
			t.serverMistake("tcp", name, cmp.Or(s.Address, s.Label, s.Name, s.Network, "without address"), s.Validate())
		}
	}
	for name, s := range sorted(c.UDP.Services) {
		for _, s := range s.Servers() {
			t.serverMistake("udp", name, cmp.Or(s.Address, s.Label, s.Name, s.Network, "without address"), s.Validate())
		}
	}
}

// serverMistake records a mistake in a server of a service.
func (t *Draft) serverMistake(section, service, server string, err error) {
	if err != nil {
		t.mistake("gateway."+section+".services."+service, fmt.Errorf("server %s: %w", server, err))
	}
}

// sorted returns the values of a map in the order of their keys.
func sorted[V any](all map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(key, all[key]) {
				return
			}
		}
	}
}

// sharedPool checks that a virtual service can have the servers of a service of the gateway.
func (t *Draft) sharedPool(name string, checked bool) error {
	v, known := t.desired.Service(name)
	switch {
	case !known:
		return errors.New("there is no such virtual service: declare it below services")
	case v.Proto != model.TCP:
		return fmt.Errorf("it is a virtual service of %s: want one of tcp", v.Proto)
	case checked:
		return errors.New("the virtual service has the check of its servers: leave out healthCheck here")
	}
	return nil
}
