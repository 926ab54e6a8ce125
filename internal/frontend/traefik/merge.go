package traefik

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// provided is a file, and its part of the configuration.
type provided struct {
	name   string
	config *gateway.Config
}

// merger joins the configurations of the files of a provider, whose names are qualified. The file that is
// added first has precedence. Merger changes no value of a file.
type merger struct {
	config   gateway.Config
	sources  []provided
	problems []Problem
}

// add adds the configuration of a source.
func (m *merger) add(s provided) {
	m.sources = append(m.sources, s)
	before := len(m.problems)
	mergeMap(m, router, httpRouters)
	mergeMap(m, service, httpServices)
	mergeMap(m, middleware, httpMiddlewares)
	mergeMap(m, transport, httpTransports)
	mergeMap(m, tcpRouter, tcpRouters)
	mergeMap(m, tcpService, tcpServices)
	mergeMap(m, tcpMiddleware, tcpMiddlewares)
	mergeMap(m, tcpTransport, tcpTransports)
	mergeMap(m, udpRouter, udpRouters)
	mergeMap(m, udpService, udpServices)
	mergeMap(m, tlsOptions, optionsOf)
	mergeMap(m, tlsStore, storesOf)
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
func mergeMap[T any](m *merger, kind string, of func(*gateway.Config) *map[string]*T) {
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
		case !reflect.DeepEqual(have, value):
			first := slices.IndexFunc(m.sources, func(s provided) bool { return (*of(s.config))[name] != nil })
			m.problems = append(m.problems, Problem{Object: kind + " " + name, Source: s.name,
				Text: fmt.Sprintf("it is already defined with other settings by %s, whose definition stays: make both "+
					"equal, or choose another name", m.sources[first].name), Warning: true})
		}
	}
}
