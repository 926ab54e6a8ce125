package traefik

import (
	"strings"

	"fairlead/internal/model/gateway"
)

// qualifyConfig turns the names of objects into NAME@PROVIDER, and the references
// between them. A reference with a provider keeps it; that to @swarm means @docker.
func qualifyConfig(c *gateway.Config, provider string) {
	q := qualifier(provider)
	qualifyHTTP(&c.HTTP, q)
	for _, r := range c.TCP.Routers {
		q.names(r.Middlewares)
		q.name(&r.Service)
		if r.TLS != nil {
			q.options(&r.TLS.Options)
		}
	}
	for _, s := range c.TCP.Services {
		if s.LoadBalancer != nil {
			q.name(&s.LoadBalancer.ServersTransport)
		}
		if s.Weighted != nil {
			q.weighted(s.Weighted.Services)
		}
	}
	for _, r := range c.UDP.Routers {
		q.name(&r.Service)
	}
	for _, s := range c.UDP.Services {
		if s.Weighted != nil {
			q.weighted(s.Weighted.Services)
		}
	}
	renameAll(q, &c.HTTP.Routers)
	renameAll(q, &c.HTTP.Services)
	renameAll(q, &c.HTTP.Middlewares)
	renameAll(q, &c.HTTP.ServersTransports)
	renameAll(q, &c.TCP.Routers)
	renameAll(q, &c.TCP.Services)
	renameAll(q, &c.TCP.Middlewares)
	renameAll(q, &c.TCP.ServersTransports)
	renameAll(q, &c.UDP.Routers)
	renameAll(q, &c.UDP.Services)
	renameAll(q, &c.TLS.Options)
	if options := c.TLS.Options[q.own("default")]; options != nil {
		delete(c.TLS.Options, q.own("default"))
		c.TLS.Options["default"] = options
	}
}

func qualifyHTTP(c *gateway.HTTP, q qualifier) {
	for _, r := range c.Routers {
		q.names(r.Middlewares)
		q.name(&r.Service)
		if r.TLS != nil {
			q.options(&r.TLS.Options)
		}
	}
	for _, m := range c.Middlewares {
		if m.Chain != nil {
			q.names(m.Chain.Middlewares)
		}
		if m.Errors != nil {
			q.name(&m.Errors.Service)
		}
	}
	for _, s := range c.Services {
		q.names(s.Middlewares)
		if s.LoadBalancer != nil {
			q.name(&s.LoadBalancer.ServersTransport)
		}
		if s.Weighted != nil {
			q.weighted(s.Weighted.Services)
		}
		if s.Mirroring != nil {
			q.name(&s.Mirroring.Service)
			for i := range s.Mirroring.Mirrors {
				q.name(&s.Mirroring.Mirrors[i].Name)
			}
		}
		if s.Failover != nil {
			q.name(&s.Failover.Service)
			q.name(&s.Failover.Fallback)
		}
	}
}

// qualifier is the name of the provider of unqualified names.
type qualifier string

// own returns the qualified name of an object of the provider.
func (q qualifier) own(name string) string { return name + "@" + string(q) }

// name qualifies a reference. An empty one stays empty.
func (q qualifier) name(name *string) {
	base, provider, found := strings.Cut(*name, "@")
	switch {
	case *name == "":
	case !found:
		*name = q.own(base)
	case provider == "swarm":
		*name = base + "@docker"
	}
}

func (q qualifier) names(names []string) {
	for i := range names {
		q.name(&names[i])
	}
}

// options qualifies the name of TLS options: "default" has no provider.
func (q qualifier) options(name *string) {
	if *name != "default" {
		q.name(name)
	}
}

func (q qualifier) weighted(services []gateway.WeightedService) {
	for i := range services {
		q.name(&services[i].Name)
	}
}

func renameAll[T any](q qualifier, objects *map[string]*T) {
	if *objects == nil {
		return
	}
	renamed := make(map[string]*T, len(*objects))
	for name, v := range *objects {
		renamed[q.own(name)] = v
	}
	*objects = renamed
}
