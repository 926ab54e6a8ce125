// Package upstream computes the servers of the HTTP gateway's services: the real servers of
// virtual services, and selected containers. Its functions are pure.
package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// Inputs are what the servers depend on, besides the gateway.
type Inputs struct {
	// Pools are the pools of the virtual services.
	Pools   map[string]*pool.Pool
	Selects Selects
}

// Selects returns the containers that a selector finds, in one address family.
type Selects func(by model.Select, v4 bool) []pool.Found

// HasSelector reports whether a service of the gateway selects containers. g may be nil.
func HasSelector(g *model.Gateway) bool { return g != nil && len(g.Config.Selectors()) > 0 }

// Of returns the gateway of a desired state with the objects of the cluster, and with the servers that its services
// have now; nil if there is none.
func Of(w model.Desired, pools map[string]*pool.Pool, found pool.Sandboxes) *model.Gateway {
	next := Resolve(w.Gateway, Inputs{Pools: pools, Selects: found.Selects})
	if next != nil {
		next.Cluster = ResolveCluster(w.ClusterGateway, OfCluster(w.Networks, found))
	}
	return next
}

// OfCluster returns what selects sandboxes for the cluster: in its networks only. A network of the
// host can have the name of one of the cluster.
func OfCluster(networks []model.Network, found pool.Sandboxes) Selects {
	return func(by model.Select, v4 bool) []pool.Found {
		if n, _ := (model.State{Networks: networks}).Network(by.Network); n.Origin != model.FromCluster {
			return nil
		}
		return found.Selects(by, v4)
	}
}

// Resolve returns the gateway with a URL or an address for each server: entries that name a virtual
// service or select containers are replaced by the servers that result. A server of HTTP that
// gets no request has the reason, and one that drains is fenced. g stays unchanged, and may be
// nil.
func Resolve(g *model.Gateway, in Inputs) *model.Gateway {
	if g == nil {
		return nil
	}
	next := *g
	next.Config = in.config(g.Config)
	return &next
}

// ResolveCluster returns the objects of the cluster with a URL or an address for each server, as
// Resolve does. c may be nil. It can name no virtual service.
func ResolveCluster(c *model.ClusterGateway, selects Selects) *model.ClusterGateway {
	if c == nil {
		return nil
	}
	return &model.ClusterGateway{Config: Inputs{Selects: selects}.config(c.Config), Problems: c.Problems}
}

// config returns the configuration with the servers that its services have.
func (in Inputs) config(c gateway.Config) gateway.Config {
	c.HTTP.Services = resolved(c.HTTP.Services, in.servers)
	c.TCP.Services = resolved(c.TCP.Services, in.tcpServers)
	c.UDP.Services = resolved(c.UDP.Services, in.udpServers)
	return c
}

// resolved returns the services, each with the servers that its entries stand for.
func resolved[S, T any, P gateway.Balanced[S, T]](all map[string]P, servers func(T) []T) map[string]P {
	all = maps.Clone(all)
	for name, s := range all {
		var found []T
		for _, one := range s.Servers() {
			found = append(found, servers(one)...)
		}
		all[name] = s.WithServers(found)
	}
	return all
}

// servers returns the servers that an entry stands for.
func (in Inputs) servers(s gateway.Server) (all []gateway.Server) {
	by := s.Selector()
	switch {
	case s.Service != "":
		return pooled(s, in.Pools[s.Service])
	case by.IsZero():
		return []gateway.Server{s}
	}
	for _, f := range Selected([]model.Select{model.Select(by)}, in.Selects) {
		one := at(s, netip.AddrPortFrom(f.Address, 0), s.Port)
		one.Fenced = s.Fenced || f.Draining
		one.Down = f.Down
		all = append(all, one)
	}
	return all
}

// tcpServers returns the servers that an entry stands for: those that get new connections.
func (in Inputs) tcpServers(s gateway.TCPServer) (all []gateway.TCPServer) {
	if s.Selector().IsZero() {
		return []gateway.TCPServer{s}
	}
	for _, address := range in.usable(s.Selector(), s.Port) {
		all = append(all, gateway.TCPServer{Address: address, TLS: s.TLS})
	}
	return all
}

// udpServers returns the servers that an entry stands for: those that get new clients.
func (in Inputs) udpServers(s gateway.UDPServer) (all []gateway.UDPServer) {
	if s.Selector().IsZero() {
		return []gateway.UDPServer{s}
	}
	for _, address := range in.usable(s.Selector(), s.Port) {
		all = append(all, gateway.UDPServer{Address: address})
	}
	return all
}

// usable returns HOST:PORT of the selected sandboxes that neither drain nor are down.
func (in Inputs) usable(by gateway.Selector, port string) (all []string) {
	for _, f := range Selected([]model.Select{model.Select(by)}, in.Selects) {
		if !f.Draining && f.Down == "" {
			all = append(all, net.JoinHostPort(f.Address.String(), port))
		}
	}
	return all
}

// Selected returns the sandboxes that selectors find, each with one address per selector.
func Selected(selectors []model.Select, selects Selects) (all []api.SelectedSandbox) {
	for _, by := range selectors {
		seen := map[string]bool{}
		for _, v4 := range []bool{true, false} {
			for _, f := range selects(by, v4) {
				if seen[f.Sandbox] {
					continue // it has addresses of both families, also at different endpoints
				}
				seen[f.Sandbox] = true
				one := api.SelectedSandbox{By: by, Endpoint: f.Endpoint, Address: f.At, Draining: f.Leaves != ""}
				if f.Health != "" && f.Health != "healthy" {
					one.Down = "the container is " + f.Health
				}
				all = append(all, one)
			}
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
