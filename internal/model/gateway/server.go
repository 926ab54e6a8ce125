package gateway

import (
	"errors"
	"fmt"
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

// Selectors returns the selectors of all services, without duplicates, in any order.
func (c Config) Selectors() (all []Selector) {
	seen := map[Selector]bool{}
	add := func(s Selector) {
		if !s.IsZero() && !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	for _, s := range c.HTTP.Services {
		if s.LoadBalancer != nil {
			for _, one := range s.LoadBalancer.Servers {
				add(one.Selector())
			}
		}
	}
	for _, s := range c.TCP.Services {
		if s.LoadBalancer != nil {
			for _, one := range s.LoadBalancer.Servers {
				add(one.Selector())
			}
		}
	}
	for _, s := range c.UDP.Services {
		if s.LoadBalancer != nil {
			for _, one := range s.LoadBalancer.Servers {
				add(one.Selector())
			}
		}
	}
	return all
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
