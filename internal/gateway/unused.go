package gateway

import (
	"fmt"

	"fairlead/internal/gateway/entries"
	"fairlead/internal/model/gateway"
)

// traefikHead is Traefik's default size of the largest head of a request, in bytes.
const traefikHead = 1 << 20

// Unused returns a note for each setting that is valid and has no effect yet.
func Unused(s gateway.Static) (notes []string) {
	add := func(set bool, format string, args ...any) {
		if set {
			notes = append(notes, fmt.Sprintf(format, args...)+" has no effect yet")
		}
	}
	docker := func(name string, d *gateway.Docker) {
		if d != nil {
			add(isFalse(d.Watch), "providers.%s.watch=false", name)
			add(d.Username != "" || d.Password != "", "providers.%s.username or password", name)
			add(d.HTTPClientTimeout > 0, "providers.%s.httpClientTimeout", name)
		}
	}
	docker("docker", s.Docker)
	docker("swarm", s.Swarm)
	if s.Metrics != nil {
		add(len(s.Metrics.HeaderLabels) > 0, "metrics.prometheus.headerLabels")
	}
	add(s.API != nil && s.API.BasePath != "" && s.API.BasePath != "/", "api.basePath")
	for _, e := range s.EntryPoints {
		at := "entryPoints." + e.Name + "."
		add(e.HTTP3 != nil && (e.MaxRequests > 0 || e.MaxAge > 0),
			"%stransport.keepAliveMaxRequests or keepAliveMaxTime for connections of HTTP/3", at)
		add(e.MaxHeaderBytes > entries.MostHead && e.MaxHeaderBytes != traefikHead,
			"%shttp.maxHeaderBytes above %d", at, entries.MostHead)
	}
	return notes
}

// isFalse reports whether a switch is off; nil is its default.
func isFalse(b *bool) bool { return b != nil && !*b }
