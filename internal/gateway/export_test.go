package gateway

import (
	"net/http"

	"fairlead/internal/model/gateway"
)

// SetDefaults replaces the time limits of entry points that set none.
func (g *Gateway) SetDefaults(l gateway.TimeLimits) { g.defaults = l }

// Handler returns the handler of an entry point.
func (g *Gateway) Handler(entry string) (http.Handler, error) {
	for _, e := range g.static.EntryPoints {
		if e.Name == entry {
			return g.newEntry(e)
		}
	}
	return http.NotFoundHandler(), nil
}
