package traefik

import (
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// The kinds of objects, as problems name them.
const (
	router        = "router"
	service       = "service"
	middleware    = "middleware"
	transport     = "transport"
	tcpRouter     = "TCP router"
	tcpService    = "TCP service"
	tcpMiddleware = "TCP middleware"
	tcpTransport  = "TCP transport"
	udpRouter     = "UDP router"
	udpService    = "UDP service"
	tlsOptions    = "tls options"
	tlsStore      = "tls store"
)

// decodeConfig decodes the sections http, tcp, udp and tls below a root, one object
// after the other: an object with a mistake is left out, and the others stay. The names
// in the result are not qualified.
func (r *reporter) decodeConfig(root *tree.Node, key string) (c gateway.Config) {
	r.decodeParts(r.unite(root, key, sectionLevels), key, []branch{
		r.section("http", objects(r, "routers", router, &c.HTTP.Routers),
			objects(r, "services", service, &c.HTTP.Services),
			objects(r, "middlewares", middleware, &c.HTTP.Middlewares),
			objects(r, "serverstransports", transport, &c.HTTP.ServersTransports)),
		r.section("tcp", objects(r, "routers", tcpRouter, &c.TCP.Routers),
			objects(r, "services", tcpService, &c.TCP.Services),
			objects(r, "middlewares", tcpMiddleware, &c.TCP.Middlewares),
			objects(r, "serverstransports", tcpTransport, &c.TCP.ServersTransports)),
		r.section("udp", objects(r, "routers", udpRouter, &c.UDP.Routers),
			objects(r, "services", udpService, &c.UDP.Services)),
		r.section("tls",
			branch{"certificates", func(n *tree.Node, key string) { r.decodeCertificates(n, key, &c.TLS) }},
			objects(r, "options", tlsOptions, &c.TLS.Options),
			objects(r, "stores", tlsStore, &c.TLS.Stores)),
	})
	return c
}

// branch is a node of the tree with a known name, in lower case.
type branch struct {
	name   string
	decode func(n *tree.Node, key string)
}

// objects is a branch with objects of one kind.
func objects[T any](r *reporter, name, kind string, into *map[string]*T) branch {
	return branch{name, func(n *tree.Node, key string) { *into = decodeObjects[T](r, kind, n, key) }}
}

// section is a branch that has branches.
func (r *reporter) section(name string, parts ...branch) branch {
	return branch{name, func(n *tree.Node, key string) {
		r.valueless(n, key)
		r.decodeParts(n, key, parts)
	}}
}

// decodeParts decodes the branches below a node.
func (r *reporter) decodeParts(n *tree.Node, key string, parts []branch) {
	for _, child := range n.Children {
		at := tree.Join(key, child.Name)
		i := slices.IndexFunc(parts, func(p branch) bool { return p.name == strings.ToLower(child.Name) })
		if i >= 0 {
			parts[i].decode(child, at)
			continue
		}
		var known []string
		for _, p := range parts {
			known = append(known, p.name)
		}
		r.mistakes("", []tree.Mistake{{Key: at, Line: child.Line, Text: tree.Unknown(child.Name, known)}})
	}
}

func (r *reporter) decodeCertificates(n *tree.Node, key string, c *gateway.TLS) {
	r.valueless(n, key)
	for _, child := range n.Children {
		at := tree.Join(key, child.Name)
		var cert gateway.Certificate
		if r.mistakes("certificate "+at, r.decode(child, at, &cert)) {
			c.Certificates = append(c.Certificates, cert)
		}
	}
}

// valueless reports the value of a key that has names below it instead. The value may be a credential.
func (r *reporter) valueless(n *tree.Node, key string) {
	if n.Value() != "" {
		r.mistakes("", []tree.Mistake{{Key: key, Line: n.Line, Text: "its value has no effect: want names below it"}})
	}
}

// decodeObjects decodes the children of a node into objects by name.
func decodeObjects[T any](r *reporter, kind string, n *tree.Node, key string) map[string]*T {
	r.valueless(n, key)
	found := map[string]*T{}
	for _, child := range n.Children {
		if v := decodeObject[T](r, kind, child, tree.Join(key, child.Name)); v != nil {
			found[child.Name] = v
		}
	}
	return found
}

// decodeObject decodes one object. It returns nil if the object is left out.
func decodeObject[T any](r *reporter, kind string, n *tree.Node, key string) (v *T) {
	object := r.object(kind, n.Name)
	var mistakes []tree.Mistake
	// The tree is only read, and the value is dropped.
	if err := recovery.Object(object, func() { mistakes = r.decode(n, key, &v) }); err != nil {
		mistakes = []tree.Mistake{{Key: key, Line: n.Line, Text: err.Error()}}
	}
	usable := r.mistakes(object, mistakes)
	if usable && v != nil {
		if err := validate(v); err != nil {
			usable = r.mistakes(object, []tree.Mistake{{Key: key, Line: n.Line, Text: err.Error()}})
		}
	}
	if usable {
		return v
	}
	if kind == router {
		r.keepRule(n)
	}
	return nil
}

func validate(v any) error {
	if err := gateway.OneKind(v); err != nil {
		return err
	}
	if checked, ok := v.(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
}
