package traefik

import (
	"maps"
	"slices"

	"fairlead/internal/model/gateway"
)

// kept returns the problem of a source whose last good configuration stays in use, for the source
// and for each object of it that the API shows.
func kept(source, text string, c *gateway.Config) []Problem {
	all := []Problem{{Source: source, Text: text, Warning: true}}
	for _, objects := range []struct {
		kind  string
		names []string
	}{
		{router, sortedNames(c.HTTP.Routers)}, {service, sortedNames(c.HTTP.Services)},
		{middleware, sortedNames(c.HTTP.Middlewares)},
		{tcpRouter, sortedNames(c.TCP.Routers)}, {tcpService, sortedNames(c.TCP.Services)},
		{tcpMiddleware, sortedNames(c.TCP.Middlewares)},
		{udpRouter, sortedNames(c.UDP.Routers)}, {udpService, sortedNames(c.UDP.Services)},
	} {
		for _, name := range objects.names {
			all = append(all, Problem{Object: objects.kind + " " + name, Source: source, Text: text, Warning: true})
		}
	}
	return all
}

func sortedNames[T any](objects map[string]*T) []string { return slices.Sorted(maps.Keys(objects)) }
