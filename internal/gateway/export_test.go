package gateway

import (
	"net/http"

	"fairlead/internal/model/gateway"
)

// SetDefaults replaces the time limits of entry points that set none.
func (g *Gateway) SetDefaults(l gateway.TimeLimits) { g.points.Defaults = l }

// Handler returns the handler of an entry point.
func (g *Gateway) Handler(entry string) (http.Handler, error) {
	for _, e := range g.static.EntryPoints {
		if e.Name == entry {
			return g.points.Handler(e)
		}
	}
	return http.NotFoundHandler(), nil
}

// WithoutServers calls do while the gateway cannot connect to servers: building a service that has a new one panics.
func (g *Gateway) WithoutServers(do func()) {
	connect := g.services.Connect
	g.services.Connect = nil
	defer func() { g.services.Connect = connect }()
	do()
}
