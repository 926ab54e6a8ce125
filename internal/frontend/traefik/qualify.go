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
	for _, all := range c.Objects() {
		if all.Kind() != tlsStore {
			all.Rename(q.own)
		}
	}
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
