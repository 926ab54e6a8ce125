package traefik

import (
	"reflect"
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
	parts := map[string][]branch{
		"tls": {{"certificates", func(n *tree.Node, key string) { r.decodeCertificates(n, key, &c.TLS) }}}}
	for _, all := range c.Objects() {
		section, list, _ := strings.Cut(all.Section(), ".")
		parts[section] = append(parts[section],
			branch{list, func(n *tree.Node, key string) { r.decodeObjects(n, key, all) }})
	}
	r.decodeParts(r.unite(root, key, sectionLevels), key, []branch{r.section("http", parts), r.section("tcp", parts),
		r.section("udp", parts), r.section("tls", parts)})
	return c
}

// branch is a node of the tree with a known name, in lower case.
type branch struct {
	name   string
	decode func(n *tree.Node, key string)
}

// section is a branch that has those of its name.
func (r *reporter) section(name string, parts map[string][]branch) branch {
	return branch{name, func(n *tree.Node, key string) {
		r.valueless(n, key)
		r.decodeParts(n, key, parts[name])
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
func (r *reporter) decodeObjects(n *tree.Node, key string, into gateway.Objects) {
	r.valueless(n, key)
	for _, child := range n.Children {
		r.decodeObject(child, tree.Join(key, child.Name), into)
	}
}

// decodeObject decodes one object. If it has mistakes, it is left out.
func (r *reporter) decodeObject(n *tree.Node, key string, into gateway.Objects) {
	object := r.object(into.Kind(), n.Name)
	at := reflect.New(reflect.TypeOf(into.New())) // the value false leaves the pointer nil
	var mistakes []tree.Mistake
	// The tree is only read, and the value is dropped.
	if err := recovery.Object(object, func() { mistakes = r.decode(n, key, at.Interface()) }); err != nil {
		mistakes = []tree.Mistake{{Key: key, Line: n.Line, Text: err.Error()}}
	}
	usable, v := r.mistakes(object, mistakes), at.Elem()
	if usable && !v.IsNil() {
		if err := validate(v.Interface()); err != nil {
			usable = r.mistakes(object, []tree.Mistake{{Key: key, Line: n.Line, Text: err.Error()}})
		}
	}
	switch {
	case usable && !v.IsNil():
		into.Put(n.Name, v.Interface())
	case !usable && into.Kind() == router:
		r.keepRule(n)
	}
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
