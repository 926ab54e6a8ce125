package gateway

import (
	"log"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// internalServices adds the gateway's own services, and routers for those that are
// enabled without routers of the user's. Only the first build does.
func (b *builder) internalServices() {
	b.kept.internal["noop@internal"] = http.NotFoundHandler()
	s := b.static
	if s.API != nil {
		api := b.api()
		b.kept.internal["api@internal"], b.kept.internal["dashboard@internal"] = api, api
		if s.API.Insecure {
			b.internalRouter("api@internal", "traefik", "PathPrefix(`/api`)", b.kept.internal["api@internal"])
		}
	}
	if s.Ping != nil {
		b.kept.internal["ping@internal"] = http.HandlerFunc(b.ping)
		if !s.Ping.ManualRouting {
			b.internalRouter("ping@internal", orTraefik(s.Ping.EntryPoint), "PathPrefix(`/ping`)",
				b.kept.internal["ping@internal"])
		}
	}
	if s.Metrics != nil {
		b.kept.internal["prometheus@internal"] = promhttp.HandlerFor(b.observer.Metrics.Registry,
			promhttp.HandlerOpts{})
		if !s.Metrics.ManualRouting {
			b.internalRouter("prometheus@internal", orTraefik(s.Metrics.EntryPoint), "PathPrefix(`/metrics`)",
				b.kept.internal["prometheus@internal"])
		}
	}
}

func orTraefik(entry string) string {
	if entry == "" {
		return "traefik"
	}
	return entry
}

// internalRouter adds a router that the user has not written, before all others.
func (b *builder) internalRouter(name, entry, text string, h http.Handler) {
	parsed, err := rule.Parse(text, "v3")
	if err != nil {
		panic(err) // the rules are constants
	}
	b.status.Of("router", name)
	r := &route.Router{Name: name, Service: name, Rule: parsed, Priority: redirectPriority, Handler: h}
	b.observer.Router(entry, r)
	b.tables.add([]placed{{entry, false, r}})
}

// errorLog takes the messages of net/http: broken handshakes and the like, which any
// client can cause.
func (g *Gateway) errorLog() *log.Logger { return slog.NewLogLogger(g.log.Handler(), slog.LevelDebug) }

// SortedKeys returns the keys in order.
func SortedKeys[T any](all map[string]T) []string { return slices.Sorted(maps.Keys(all)) }
