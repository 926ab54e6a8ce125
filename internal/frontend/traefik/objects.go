package traefik

import (
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
	for _, section := range r.unite(root, key, sectionLevels).Children {
		at := tree.Join(key, section.Name)
		switch strings.ToLower(section.Name) {
		case "http":
			r.decodeHTTP(section, at, &c.HTTP)
		case "tcp":
			r.decodeTCP(section, at, &c.TCP)
		case "udp":
			r.decodeUDP(section, at, &c.UDP)
		case "tls":
			r.decodeTLS(section, at, &c.TLS)
		default:
			r.mistakes("", []tree.Mistake{{Key: at, Line: section.Line,
				Text: tree.Unknown(section.Name, []string{"http", "tcp", "udp", "tls"})}})
		}
	}
	return c
}

func (r *reporter) decodeHTTP(n *tree.Node, key string, c *gateway.HTTP) {
	r.valueless(n, key)
	for _, part := range n.Children {
		at := tree.Join(key, part.Name)
		switch strings.ToLower(part.Name) {
		case "routers":
			c.Routers = decodeObjects[gateway.Router](r, router, part, at)
		case "services":
			c.Services = decodeObjects[gateway.Service](r, service, part, at)
		case "middlewares":
			c.Middlewares = decodeObjects[gateway.Middleware](r, middleware, part, at)
		case "serverstransports":
			c.ServersTransports = decodeObjects[gateway.ServersTransport](r, transport, part, at)
		default:
			r.unknownPart(part, at, "routers", "services", "middlewares", "serverstransports")
		}
	}
}

func (r *reporter) decodeTCP(n *tree.Node, key string, c *gateway.TCP) {
	r.valueless(n, key)
	for _, part := range n.Children {
		at := tree.Join(key, part.Name)
		switch strings.ToLower(part.Name) {
		case "routers":
			c.Routers = decodeObjects[gateway.TCPRouter](r, tcpRouter, part, at)
		case "services":
			c.Services = decodeObjects[gateway.TCPService](r, tcpService, part, at)
		case "middlewares":
			c.Middlewares = decodeObjects[gateway.TCPMiddleware](r, tcpMiddleware, part, at)
		case "serverstransports":
			c.ServersTransports = decodeObjects[gateway.TCPServersTransport](r, tcpTransport, part, at)
		default:
			r.unknownPart(part, at, "routers", "services", "middlewares", "serverstransports")
		}
	}
}

func (r *reporter) decodeUDP(n *tree.Node, key string, c *gateway.UDP) {
	r.valueless(n, key)
	for _, part := range n.Children {
		at := tree.Join(key, part.Name)
		switch strings.ToLower(part.Name) {
		case "routers":
			c.Routers = decodeObjects[gateway.UDPRouter](r, udpRouter, part, at)
		case "services":
			c.Services = decodeObjects[gateway.UDPService](r, udpService, part, at)
		default:
			r.unknownPart(part, at, "routers", "services")
		}
	}
}

func (r *reporter) decodeTLS(n *tree.Node, key string, c *gateway.TLS) {
	r.valueless(n, key)
	for _, part := range n.Children {
		at := tree.Join(key, part.Name)
		switch strings.ToLower(part.Name) {
		case "certificates":
			r.decodeCertificates(part, at, c)
		case "options":
			c.Options = decodeObjects[gateway.TLSOptions](r, tlsOptions, part, at)
		case "stores":
			c.Stores = decodeObjects[gateway.Store](r, tlsStore, part, at)
		default:
			r.unknownPart(part, at, "certificates", "options", "stores")
		}
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

func (r *reporter) unknownPart(n *tree.Node, key string, known ...string) {
	r.mistakes("", []tree.Mistake{{Key: key, Line: n.Line, Text: tree.Unknown(n.Name, known)}})
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
