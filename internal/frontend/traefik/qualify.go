package traefik

import (
	"strings"

	"fairlead/internal/model/gateway"
)

// qualifyConfig turns the names of objects into NAME@PROVIDER, and the references
// between them. A reference with a provider keeps it; that to @swarm means @docker.
func qualifyConfig(c *gateway.Config, provider string) {
	q := qualifier(provider)
	for _, all := range c.Objects() {
		for _, value := range all.All() {
			refer(value, q.refer)
		}
		if all.Kind() != tlsStore {
			all.Rename(q.own)
		}
	}
	if options := c.TLS.Options[q.own("default")]; options != nil {
		delete(c.TLS.Options, q.own("default"))
		c.TLS.Options["default"] = options
	}
}

// visitor is called with each reference of an object: the kind and the name of the object that it
// means. It may change the name.
type visitor func(kind string, name *string)

// refer visits the references of an object.
func refer(object any, visit visitor) {
	gateway.Texts(object, "refers", func(t gateway.Text) { visit(t.Tag, t.Value) })
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

// refer qualifies a reference to an object of the kind. The TLS options "default" have no provider.
func (q qualifier) refer(kind string, name *string) {
	if kind != tlsOptions || *name != "default" {
		q.name(name)
	}
}
