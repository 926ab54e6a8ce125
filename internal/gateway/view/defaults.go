package view

import (
	"slices"
	"strings"
)

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
