package traefik

import (
	"strings"

	"fairlead/internal/model/gateway"
)

// qualifyConfig turns the names of objects into NAME@PROVIDER, and the references
// between them. A reference with a provider keeps it; that to @swarm means @docker.
func qualifyConfig(c *gateway.Config, provider string) {
	q := qualifier(provider)
	referAll(c.HTTP.Routers, referRouter, q.refer)
	referAll(c.HTTP.Middlewares, referMiddleware, q.refer)
	referAll(c.HTTP.Services, referService, q.refer)
	referAll(c.TCP.Routers, referTCPRouter, q.refer)
	referAll(c.TCP.Services, referTCPService, q.refer)
	referAll(c.UDP.Routers, referUDPRouter, q.refer)
	referAll(c.UDP.Services, referUDPService, q.refer)
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

// referAll visits the references of objects of one kind.
func referAll[T any](objects map[string]*T, refer func(*T, visitor), v visitor) {
	for _, value := range objects {
		refer(value, v)
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

// refer qualifies a reference to an object of the kind.
func (q qualifier) refer(kind string, name *string) {
	if kind == tlsOptions {
		q.options(name)
		return
	}
	q.name(name)
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
