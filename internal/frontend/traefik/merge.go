package traefik

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// provided is a container or file, and its part of the configuration.
type provided struct {
	name   string
	config *gateway.Config
}

// merger joins the configurations of the sources of one provider, whose names are
// qualified. The source that is added first has precedence. Merger changes no value of
// a source.
type merger struct {
	// servers joins the servers of services that differ in nothing else.
	servers  bool
	config   gateway.Config
	sources  []provided
	problems []Problem
	// joined has the addresses of the services that are copies with the servers of
	// several sources, by their names in problems.
	joined map[string]map[string]bool
}

// add adds the configuration of a source.
func (m *merger) add(s provided) {
	m.sources = append(m.sources, s)
	before := len(m.problems)
	mergeMap(m, router, httpRouters, nil)
	mergeMap(m, service, httpServices, joinHTTP)
	mergeMap(m, middleware, httpMiddlewares, nil)
	mergeMap(m, transport, httpTransports, nil)
	mergeMap(m, tcpRouter, tcpRouters, nil)
	mergeMap(m, tcpService, tcpServices, joinTCP)
	mergeMap(m, tcpMiddleware, tcpMiddlewares, nil)
	mergeMap(m, tcpTransport, tcpTransports, nil)
	mergeMap(m, udpRouter, udpRouters, nil)
	mergeMap(m, udpService, udpServices, joinUDP)
	mergeMap(m, tlsOptions, optionsOf, nil)
	mergeMap(m, tlsStore, storesOf, nil)
	m.config.TLS.Certificates = append(m.config.TLS.Certificates, s.config.TLS.Certificates...)
	slices.SortFunc(m.problems[before:], func(a, b Problem) int { return strings.Compare(a.Object, b.Object) })
}

// The maps of a configuration.
func httpRouters(c *gateway.Config) *map[string]*gateway.Router         { return &c.HTTP.Routers }
func httpServices(c *gateway.Config) *map[string]*gateway.Service       { return &c.HTTP.Services }
func httpMiddlewares(c *gateway.Config) *map[string]*gateway.Middleware { return &c.HTTP.Middlewares }
func httpTransports(c *gateway.Config) *map[string]*gateway.ServersTransport {
	return &c.HTTP.ServersTransports
}
func tcpRouters(c *gateway.Config) *map[string]*gateway.TCPRouter         { return &c.TCP.Routers }
func tcpServices(c *gateway.Config) *map[string]*gateway.TCPService       { return &c.TCP.Services }
func tcpMiddlewares(c *gateway.Config) *map[string]*gateway.TCPMiddleware { return &c.TCP.Middlewares }
func tcpTransports(c *gateway.Config) *map[string]*gateway.TCPServersTransport {
	return &c.TCP.ServersTransports
}
func udpRouters(c *gateway.Config) *map[string]*gateway.UDPRouter   { return &c.UDP.Routers }
func udpServices(c *gateway.Config) *map[string]*gateway.UDPService { return &c.UDP.Services }
func optionsOf(c *gateway.Config) *map[string]*gateway.TLSOptions   { return &c.TLS.Options }
func storesOf(c *gateway.Config) *map[string]*gateway.Store         { return &c.TLS.Stores }

// mergeMap adds the objects of one kind of the last source.
func mergeMap[T any](m *merger, kind string, of func(*gateway.Config) *map[string]*T, join joinFunc[T]) {
	s := m.sources[len(m.sources)-1]
	from, to := *of(s.config), of(&m.config)
	if len(from) == 0 {
		return
	}
	if *to == nil {
		*to = make(map[string]*T, len(from))
	}
	for name, value := range from {
		have := (*to)[name]
		switch {
		case have == nil:
			(*to)[name] = value
		case m.servers && join != nil && joinInto(m, kind+" "+name, *to, name, value, join):
		case !reflect.DeepEqual(have, value):
			first := slices.IndexFunc(m.sources, func(s provided) bool { return (*of(s.config))[name] != nil })
			m.problems = append(m.problems, Problem{kind + " " + name, s.name, fmt.Sprintf(
				"it is already defined with other settings by %s, whose definition stays: make both equal, or choose "+
					"another name", m.sources[first].name), true})
		}
	}
}
