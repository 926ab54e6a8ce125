// Package upstream computes the servers of the HTTP gateway's services: the real servers of
// virtual services, and selected containers. Its functions are pure.
package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// Inputs are what the servers depend on, besides the gateway.
type Inputs struct {
	// Pools are the pools of the virtual services.
	Pools map[string]*pool.Pool
	// Selects returns the containers that a selector finds, in one address family.
	Selects func(model.Select, bool) []pool.Found
}

// HasSelector reports whether a service of the gateway selects containers. g may be nil.
func HasSelector(g *model.Gateway) bool {
	return g != nil && slices.ContainsFunc(slices.Collect(maps.Values(g.Config.HTTP.Services)),
		func(s *gateway.Service) bool {
			return s.LoadBalancer != nil && slices.ContainsFunc(s.LoadBalancer.Servers,
				func(s gateway.Server) bool { return !selectOf(s).IsZero() })
		})
}

// Resolve returns the gateway with a URL for each server: entries that name a virtual
// service or select containers are replaced by the servers that result. A server that gets
// no request has the reason, and one that drains is fenced. g stays unchanged, and may be
// nil.
func Resolve(g *model.Gateway, in Inputs) *model.Gateway {
	if g == nil {
		return nil
	}
	next := *g
	next.Config.HTTP.Services = maps.Clone(g.Config.HTTP.Services)
	for name, s := range next.Config.HTTP.Services {
		if s.LoadBalancer == nil {
			continue
		}
		service, lb := *s, *s.LoadBalancer
		lb.Servers = nil
		for _, one := range s.LoadBalancer.Servers {
			lb.Servers = append(lb.Servers, in.servers(one)...)
		}
		service.LoadBalancer = &lb
		next.Config.HTTP.Services[name] = &service
	}
	return &next
}

// servers returns the servers that an entry stands for.
func (in Inputs) servers(s gateway.Server) []gateway.Server {
	by := selectOf(s)
	switch {
	case s.Service != "":
		return pooled(s, in.Pools[s.Service])
	case by.IsZero():
		return []gateway.Server{s}
	}
	var all []gateway.Server
	seen := map[string]bool{}
	for _, v4 := range []bool{true, false} {
		for _, f := range in.Selects(by, v4) {
			if seen[f.Endpoint] {
				continue // it has addresses of both families
			}
			seen[f.Endpoint] = true
			one := at(s, netip.AddrPortFrom(f.At, 0), s.Port)
			one.Fenced = s.Fenced || f.Leaves != ""
			if f.Health != "" && f.Health != "healthy" {
				one.Down = "the container is " + f.Health
			}
			all = append(all, one)
		}
	}
	return all
}

// pooled returns the real servers of a virtual service, as the data planes have them. It
// returns the entry itself if the service is not in use: the gateway reports it.
func pooled(s gateway.Server, p *pool.Pool) []gateway.Server {
	if p == nil || len(p.Spec.Ports) == 0 {
		return []gateway.Server{s}
	}
	all := make([]gateway.Server, 0, len(p.Full.Reals))
	for _, r := range p.Full.Reals {
		address := r.At(p.Spec.Ports[0].First)
		one := at(s, address, cmp.Or(s.Port, fmt.Sprint(address.Port())))
		one.Weight = &r.Weight
		one.Fenced = r.State == model.RealDraining
		if r.State == model.RealDown {
			one.Down = "it is down"
			if m := p.Member(r.At(0)); m != nil && m.Shown.Cause != "" {
				one.Down = m.Shown.Cause
			}
		}
		all = append(all, one)
	}
	return all
}

// at returns the entry as a server at an address, with another port.
func at(s gateway.Server, address netip.AddrPort, port string) gateway.Server {
	host := address.Addr().String()
	if address.Addr().Is6() {
		host = "[" + host + "]"
	}
	s.URL = cmp.Or(s.Scheme, "http") + "://" + host + ":" + port
	s.Scheme, s.Port, s.Service, s.Label, s.Name, s.Network = "", "", "", "", "", ""
	return s
}

func selectOf(s gateway.Server) model.Select {
	return model.Select{Name: s.Name, Label: s.Label, Network: s.Network}
}
