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
	for _, setting := range s.Providers.Unused() {
		add(true, "providers.%s", setting)
	}
	if s.Metrics != nil {
		add(len(s.Metrics.HeaderLabels) > 0, "metrics.prometheus.headerLabels")
	}
	for _, e := range s.EntryPoints {
		at := "entryPoints." + e.Name + "."
		add(e.HTTP3 != nil && (e.MaxRequests > 0 || e.MaxAge > 0),
			"%stransport.keepAliveMaxRequests or keepAliveMaxTime for connections of HTTP/3", at)
		add(e.MaxHeaderBytes > entries.MostHead && e.MaxHeaderBytes != traefikHead,
			"%shttp.maxHeaderBytes above %d", at, entries.MostHead)
	}
	return notes
}
