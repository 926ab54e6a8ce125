package traefik

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// dynamicParts are the sections of Traefik's dynamic files, and staticParts the settings of
// its static file, that the gateway of fairlead.yaml has.
var (
	dynamicParts = []string{"http", "tcp", "udp", "tls"}
	staticParts  = []string{"entrypoints", "providers", "api", "ping", "metrics", "accesslog",
		"certificatesresolvers", "serverstransport", "tcpserverstransport", "core"}
)

// Declared returns the gateway that a tree describes: the settings of Traefik's static file
// and the sections of its dynamic files side by side. key is the key of the tree's root, for
// the mistakes. Names stay as they are written: Qualified adds the provider. Settings that
// would have no effect are mistakes, too.
func Declared(root *tree.Node, key string) (gateway.Static, gateway.Config, []tree.Mistake) {
	settings, dynamic := &tree.Node{Line: root.Line}, &tree.Node{Line: root.Line}
	d := declared{root: root, key: key}
	for _, child := range root.Children {
		switch name := strings.ToLower(child.Name); {
		case slices.Contains(dynamicParts, name):
			dynamic.Children = append(dynamic.Children, child)
		case slices.Contains(staticParts, name):
			settings.Children = append(settings.Children, child)
		default:
			d.mistakes = append(d.mistakes, tree.Mistake{Key: tree.Join(key, child.Name), Line: child.Line,
				Text: tree.Unknown(child.Name, slices.Concat(staticParts, dynamicParts))})
		}
	}
	s, found := static.Declared(settings, key)
	d.mistakes = append(d.mistakes, found...)
	c := d.objects(dynamic, "file")
	d.certificates(c.TLS)
	return s, c, d.mistakes
}

// DeclaredInCluster returns the objects of the gateway of a cluster that a tree describes: the sections http,
// tcp, udp and tls of Traefik's dynamic files. key is as for Declared.
func DeclaredInCluster(root *tree.Node, key string) (gateway.Config, []tree.Mistake) {
	d := declared{root: root, key: key}
	return d.objects(root, "cluster"), d.mistakes
}

// objects decodes the sections of dynamic files. All that is found is a mistake.
func (d *declared) objects(n *tree.Node, provider string) gateway.Config {
	r := &reporter{provider: provider, declared: true}
	c := r.decodeConfig(n, d.key)
	d.mistakes = append(d.mistakes, r.found...)
	for i := range d.mistakes {
		d.mistakes[i].Warning = false
	}
	return c
}

// declared collects the mistakes of a tree.
type declared struct {
	root     *tree.Node
	key      string
	mistakes []tree.Mistake
}

// add adds a mistake with a key below the root.
func (d *declared) add(key, format string, args ...any) {
	d.mistakes = append(d.mistakes, tree.Mistake{Key: tree.Join(d.key, key), Line: d.root.LineOf(key),
		Text: fmt.Sprintf(format, args...)})
}

// certificates checks the certificates and the default one.
func (d *declared) certificates(c gateway.TLS) {
	for i, cert := range c.Certificates {
		if cert.CertFile == "" || cert.KeyFile == "" {
			d.add(fmt.Sprintf("tls.certificates[%d]", i), "it has no %s", missing(cert))
		}
	}
	for name := range c.Stores {
		if name != "default" {
			d.add("tls.stores."+name, "only the store %q is in use", "default")
		}
	}
}

// QualifiedAs returns a copy of a declared configuration in which all names are NAME@PROVIDER.
func QualifiedAs(provider string, c gateway.Config) gateway.Config {
	copied := gateway.Clone(&c)
	qualifyConfig(copied, provider)
	return *copied
}

// Qualified returns copies of declared values in which all names are NAME@file.
func Qualified(s gateway.Static, c gateway.Config) (gateway.Static, gateway.Config) {
	q := qualifier("file")
	s.EntryPoints = gateway.Clone(s.EntryPoints)
	refer(s.EntryPoints, q.refer)
	return s, QualifiedAs("file", c)
}
