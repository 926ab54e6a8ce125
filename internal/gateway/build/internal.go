package build

import (
	"cmp"
	"fmt"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
)

// addInternal adds routers for the gateway's own services that are
// enabled without routers of the user's. Only the first build does.
func (b *builder) addInternal() {
	s := b.Static
	if s.API != nil && s.API.Insecure {
		at := s.API.Prefix()
		b.internalRouter("api@internal", "traefik", "PathPrefix(`"+at+"/api`)")
		if s.API.Dashboard {
			b.internalRouter("dashboard@internal", "traefik", fmt.Sprintf("Path(`%s`) || Path(`%s/`) || "+
				"Path(`%[2]s/dashboard`) || PathPrefix(`%[2]s/dashboard/`)", cmp.Or(at, "/"), at))
		}
	}
	if s.Ping != nil && !s.Ping.ManualRouting {
		b.internalRouter("ping@internal", cmp.Or(s.Ping.EntryPoint, "traefik"), "PathPrefix(`/ping`)")
	}
	if s.Metrics != nil && !s.Metrics.ManualRouting {
		b.internalRouter("prometheus@internal", cmp.Or(s.Metrics.EntryPoint, "traefik"), "PathPrefix(`/metrics`)")
	}
}

// internalRouter adds a router that the user has not written, before all others.
func (b *builder) internalRouter(name, entry, text string) {
	parsed, err := rule.Parse(text, "v3")
	if err != nil {
		panic(err) // the rules are constants, and Prefix returns only plain paths
	}
	b.status.Of("router", name)
	r := &route.Router{Name: name, Service: name, Rule: parsed, Priority: redirectPriority,
		Handler: b.Internal[name]}
	b.Observer.Router(entry, r)
	b.tables.add([]placed{{entry, false, r}})
}
