package gateway

import (
	"net/http"
	"time"

	"fairlead/internal/gateway/rule"
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

// WithoutServers calls do while the gateway cannot remember servers: building a service that has a new one panics.
func (g *Gateway) WithoutServers(do func()) {
	running := g.running
	g.running = nil
	defer func() { g.running = running }()
	do()
}

// BreakRule makes a router panic when it is built again with the same rule.
func (g *Gateway) BreakRule(router string) { g.kept.routers[router].rule = new(rule.Rule) }

// CheckInterval returns the time between two checks of a service's server that is up.
func (g *Gateway) CheckInterval(service string) time.Duration {
	return g.checks[service].of.value.Interval
}
