package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

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
	case have != nil && have.Origin != t.origin:
		t.mistake("gateway", fmt.Errorf("gateway: a host has one gateway, and %s: leave it out, or remove the other",
			createdBy(have.Origin)))
		return
	}
	g := *t.spec.Gateway
	g.Origin = t.origin
	t.gatewayServices(g.Config.HTTP)
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
func (t *Draft) gatewayServices(c gateway.HTTP) {
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		lb := c.Services[name].LoadBalancer
		if lb == nil {
			continue
		}
		for _, s := range lb.Servers {
			err := serverMistake(s)
			if err == nil && s.Service != "" {
				err = t.sharedPool(s.Service, lb.HealthCheck != nil)
			}
			if err != nil {
				t.mistake("gateway.http.services."+name, fmt.Errorf("server %s: %w",
					cmp.Or(s.URL, s.Service, s.Label, s.Name, s.Network, "without url"), err))
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

// serverMistake returns what is wrong with a server by itself.
func serverMistake(s gateway.Server) error {
	selects := s.Label != "" || s.Name != "" || s.Network != ""
	ways := 0
	for _, used := range []bool{s.URL != "", s.Service != "", selects} {
		if used {
			ways++
		}
	}
	_, badPort := strconv.ParseUint(s.Port, 10, 16)
	switch {
	case ways != 1:
		return errors.New("want one of url, service, and label, name or network to select containers")
	case s.URL != "" && (s.Scheme != "" || s.Port != ""):
		return errors.New("the url has the scheme and the port: leave out scheme and port")
	case s.Scheme != "" && !slices.Contains([]string{"http", "https", "h2c"}, s.Scheme):
		return fmt.Errorf("scheme %q: want http, https or h2c", s.Scheme)
	case selects && s.Port == "":
		return errors.New("want the port of the containers, e.g. port: 8080")
	case s.Port != "" && badPort != nil:
		return fmt.Errorf("port %q: want a number up to 65535", s.Port)
	case s.Service != "" && s.Weight != nil:
		return errors.New("the virtual service has the weights of its servers: leave out weight")
	}
	return nil
}
