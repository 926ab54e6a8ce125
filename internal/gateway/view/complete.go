package view

import (
	"cmp"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// complete adds to a router what its entry points and the static configuration give it, as Traefik's
// API shows it.
func (s *Source) complete(r *Router, own *gateway.Observability) {
	if len(r.EntryPoints) == 0 {
		r.EntryPoints = s.Static.Default
	}
	r.RuleSyntax = cmp.Or(r.RuleSyntax, s.Static.RuleSyntax)
	var first gateway.EntryPoint
	for _, e := range s.Static.EntryPoints {
		if len(r.EntryPoints) > 0 && e.Name == r.EntryPoints[0] {
			first = e
		}
	}
	if r.TLS == nil {
		r.TLS = form(first.TLS)
	}
	r.Middlewares = slices.Concat(first.Middlewares, r.Middlewares)
	r.Observability = observability(own, first.Observability)
}

// observability returns what is recorded of a router's requests: its own settings, those of the entry
// point, and Traefik's defaults.
func observability(own, entry *gateway.Observability) any {
	all := map[string]any{"accessLogs": true, "metrics": true, "tracing": true, "traceVerbosity": "minimal"}
	for _, o := range []*gateway.Observability{entry, own} {
		if set, ok := form(o).(map[string]any); ok {
			for key, value := range set {
				all[key] = value
			}
		}
	}
	return all
}

// defaults are the values of keys that are not set, by the name of the type. They are those of
// Traefik.
var defaults = map[string]map[string]any{
	"LoadBalancer": {"passHostHeader": true, "strategy": "wrr",
		"responseForwarding": map[string]any{"flushInterval": "100ms"}},
	"HealthCheck": {"mode": "http", "timeout": "5s", "interval": "30s", "followRedirects": true},
	"Cookie":      {"path": "/"},
	"Mirroring":   {"mirrorBody": true, "maxBodySize": -1},
	"ForwardAuth": {"maxBodySize": -1},
	"RateLimit":   {"burst": 1, "period": "1s"},
	"Compress":    {"encodings": []string{"gzip", "br", "zstd"}},
	"Retry":       {"maxRequestBodyBytes": 2 << 20},
	"CircuitBreaker": {"checkPeriod": "100ms", "fallbackDuration": "10s", "recoveryDuration": "10s",
		"responseCode": 503},
	"WeightedService": {"weight": 1},
}

// addDefaults adds the values of keys that are not set.
func addDefaults(to map[string]any, of string) {
	for key, value := range defaults[of] {
		if _, ok := to[key]; !ok {
			to[key] = value
		}
	}
}

// references are the keys whose values are names of other objects.
var references = []string{"service", "fallback", "middlewares", "services", "mirrors", "name"}

// written returns a value with the names of objects as users write them: without the provider if it
// is that of the object that has the value.
func written(value any, provider string) any {
	switch v := value.(type) {
	case string:
		return strings.TrimSuffix(v, "@"+provider)
	case []any:
		for i := range v {
			v[i] = written(v[i], provider)
		}
	case map[string]any:
		for key, child := range v {
			if _, nested := child.(map[string]any); nested || slices.Contains(references, key) {
				v[key] = written(child, provider)
			}
		}
	}
	return value
}
