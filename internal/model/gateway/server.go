package gateway

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Selector selects containers. It is model.Select, which this package cannot import.
type Selector struct{ Name, Label, Network string }

// IsZero reports whether nothing is selected.
func (s Selector) IsZero() bool { return s == Selector{} }

// Selector returns what the entry selects; it is zero if it selects nothing.
func (s Server) Selector() Selector { return Selector{s.Name, s.Label, s.Network} }

// Selector returns what the entry selects; it is zero if it selects nothing.
func (s TCPServer) Selector() Selector { return Selector{s.Name, s.Label, s.Network} }

// Selector returns what the entry selects; it is zero if it selects nothing.
func (s UDPServer) Selector() Selector { return Selector{s.Name, s.Label, s.Network} }

// Servers returns the servers of the load balancer, nil if the service is none.
func (s *Service) Servers() []Server {
	if s.LoadBalancer == nil {
		return nil
	}
	return s.LoadBalancer.Servers
}

// Servers returns the servers of the load balancer, nil if the service is none.
func (s *TCPService) Servers() []TCPServer {
	if s.LoadBalancer == nil {
		return nil
	}
	return s.LoadBalancer.Servers
}

// Servers returns the servers of the load balancer, nil if the service is none.
func (s *UDPService) Servers() []UDPServer {
	if s.LoadBalancer == nil {
		return nil
	}
	return s.LoadBalancer.Servers
}

// WithServers returns a copy of the service whose load balancer, if it is one, has these servers.
func (s *Service) WithServers(servers []Server) *Service {
	next := *s
	if s.LoadBalancer != nil {
		lb := *s.LoadBalancer
		lb.Servers, next.LoadBalancer = servers, &lb
	}
	return &next
}

// WithServers returns a copy of the service whose load balancer, if it is one, has these servers.
func (s *TCPService) WithServers(servers []TCPServer) *TCPService {
	next := *s
	if s.LoadBalancer != nil {
		lb := *s.LoadBalancer
		lb.Servers, next.LoadBalancer = servers, &lb
	}
	return &next
}

// WithServers returns a copy of the service whose load balancer, if it is one, has these servers.
func (s *UDPService) WithServers(servers []UDPServer) *UDPService {
	next := *s
	if s.LoadBalancer != nil {
		next.LoadBalancer = &UDPLoadBalancer{servers}
	}
	return &next
}

// Balanced is a service S with servers of type T, as a pointer.
type Balanced[S, T any] interface {
	*S
	Servers() []T
	WithServers([]T) *S
}

// Selectors returns the selectors of all services, without duplicates, in any order.
func (c Config) Selectors() []Selector {
	all := map[Selector]bool{}
	addSelectors(all, c.HTTP.Services)
	addSelectors(all, c.TCP.Services)
	addSelectors(all, c.UDP.Services)
	delete(all, Selector{})
	return slices.Collect(maps.Keys(all))
}

func addSelectors[S any, T interface{ Selector() Selector }, P Balanced[S, T]](to map[Selector]bool, of map[string]P) {
	for _, s := range of {
		for _, one := range s.Servers() {
			to[one.Selector()] = true
		}
	}
}

// Validate returns what is wrong with a server of a file by itself.
func (s Server) Validate() error {
	selects, ways := !s.Selector().IsZero(), 0
	for _, used := range []bool{s.URL != "", s.Service != "", selects} {
		if used {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("want one of url, service, and label, name or network to select containers")
	case s.URL != "" && (s.Scheme != "" || s.Port != ""):
		return errors.New("the url has the scheme and the port: leave out scheme and port")
	case s.Scheme != "" && !slices.Contains([]string{"http", "https", "h2c"}, s.Scheme):
		return fmt.Errorf("scheme %q: want http, https or h2c", s.Scheme)
	case s.Service != "" && s.Weight != nil:
		return errors.New("the virtual service has the weights of its servers: leave out weight")
	}
	return checkPort(s.Port, selects)
}

// Validate returns what is wrong with a server of a file by itself.
func (s TCPServer) Validate() error { return checkStreamServer(s.Address, s.Port, s.Selector()) }

// Validate returns what is wrong with a server of a file by itself.
func (s UDPServer) Validate() error { return checkStreamServer(s.Address, s.Port, s.Selector()) }

func checkStreamServer(address, port string, by Selector) error {
	switch {
	case (address != "") != by.IsZero():
		return errors.New("want address, or label, name or network to select containers")
	case address != "" && port != "":
		return errors.New("the address has the port: leave out port")
	}
	return checkPort(port, !by.IsZero())
}

// checkPort checks a port, which servers that are selected must have.
func checkPort(port string, needed bool) error {
	_, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case needed && port == "":
		return errors.New("want the port of the containers, e.g. port: 8080")
	case port != "" && (bad != nil || port == "0"):
		return fmt.Errorf("port %q: want a number up to 65535", port)
	}
	return nil
}
