package traefik

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

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
	static, dynamic := &tree.Node{Line: root.Line}, &tree.Node{Line: root.Line}
	d := declared{root: root, key: key}
	for _, child := range root.Children {
		switch name := strings.ToLower(child.Name); {
		case slices.Contains(dynamicParts, name):
			dynamic.Children = append(dynamic.Children, child)
		case slices.Contains(staticParts, name):
			static.Children = append(static.Children, child)
		default:
			d.mistakes = append(d.mistakes, tree.Mistake{Key: tree.Join(key, child.Name), Line: child.Line,
				Text: tree.Unknown(child.Name, slices.Concat(staticParts, dynamicParts))})
		}
	}
	s := d.static(static)
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

// static returns the static settings. The builder's mistakes have no lines, and keys below
// the root.
func (d *declared) static(n *tree.Node) gateway.Static {
	var settings staticSettings
	found := tree.Decode(n, d.key, &settings)
	d.mistakes = append(d.mistakes, found...)
	if len(settings.EntryPoints) == 0 {
		d.add("entryPoints", "want at least one entry point, such as web: {address: \":80\"}")
		return gateway.Static{}
	}
	if p := settings.Providers; p != nil && (p.File != nil || p.Docker != nil && p.Swarm != nil) {
		d.add("providers", "want docker or swarm: write the content of other files below gateway")
	}
	b := &staticBuilder{}
	s := b.build(&settings)
	if len(found) > 0 {
		return s // what the builder finds may be a consequence
	}
	for _, m := range b.mistakes {
		d.add(m.Key, "%s", m.Text)
	}
	for _, note := range b.notes {
		d.add(note.Key, "%s", note.Text)
	}
	return s
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
func QualifiedAs(provider string, c gateway.Config) (gateway.Config, error) {
	text, err := json.Marshal(c)
	var copied gateway.Config
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	if err != nil {
		return copied, fmt.Errorf("copy the configuration: %w", err)
	}
	qualifyConfig(&copied, provider)
	return copied, nil
}

// Qualified returns copies of declared values in which all names are NAME@file.
func Qualified(s gateway.Static, c gateway.Config) (gateway.Static, gateway.Config, error) {
	copied, err := QualifiedAs("file", c)
	if err != nil {
		return s, copied, err
	}
	q := qualifier("file")
	s.EntryPoints = slices.Clone(s.EntryPoints)
	for i := range s.EntryPoints {
		e := &s.EntryPoints[i]
		e.Middlewares = slices.Clone(e.Middlewares)
		q.names(e.Middlewares)
		if e.TLS != nil {
			tls := *e.TLS
			q.options(&tls.Options)
			e.TLS = &tls
		}
	}
	return s, copied, nil
}

// Settings returns the settings from which Declared makes these values, as a pointer to a
// struct whose fields have the names of keys.
func Settings(s gateway.Static) any {
	out := &staticSettings{Ping: s.Ping, EntryPoints: map[string]*entryPointSettings{}}
	if s.API != nil {
		out.API = &apiSettings{Insecure: s.API.Insecure, Dashboard: &s.API.Dashboard, BasePath: s.API.BasePath}
	}
	if s.Metrics != nil {
		out.Metrics = &metricsSettings{Prometheus: s.Metrics}
	}
	if a := s.AccessLog; a != nil {
		out.AccessLog = &accessLogSettings{FilePath: a.FilePath, Format: a.Format, BufferingSize: a.BufferingSize,
			AddInternals: a.AddInternals, Fields: a.Fields, Filters: nonzero(filterSettings{a.StatusCodes,
				a.RetryAttempts, a.MinDuration})}
	}
	if s.RuleSyntax != "" {
		out.Core = &coreSettings{s.RuleSyntax}
	}
	if s.Docker != nil {
		out.Providers = &providerSettings{Docker: s.Docker}
	}
	out.ServersTransport, out.TCPServersTransport = nonzero(s.Transport), nonzero(s.TCPTransport)
	for _, e := range s.EntryPoints {
		if e.Name != internalEntryPoint || e.Address != ":8080" || !needsInternal(&s) {
			out.EntryPoints[e.Name] = entryPointOf(e)
		}
	}
	for name, r := range s.Resolvers {
		if out.CertificatesResolvers == nil {
			out.CertificatesResolvers = map[string]*resolverSettings{}
		}
		out.CertificatesResolvers[name] = &resolverSettings{ACME: acmeOf(r)}
	}
	return out
}

func entryPointOf(e gateway.EntryPoint) *entryPointSettings {
	s := &entryPointSettings{Address: e.Address, AsDefault: e.AsDefault, HTTP3: e.HTTP3,
		Observability: e.Observability, HTTP2: nonzero(http2Settings{e.MaxConcurrentStreams}),
		ForwardedHeaders: nonzero(forwardedHeaderSettings{e.Insecure, e.TrustedProxies, e.ConnectionHeaders,
			e.NotAppendXForwardedFor}),
		ProxyProtocol: nonzero(trustSettings{e.ProxyProtocolInsecure, e.ProxyProtocol}),
		UDP:           &udpSettings{&e.UDPTimeout}}
	h := httpSettings{Middlewares: e.Middlewares, TLS: e.TLS, EncodeQuerySemicolons: e.EncodeQuerySemicolons,
		MaxHeaderBytes: e.MaxHeaderBytes, SanitizePath: e.SanitizePath}
	if r := e.Redirect; r != nil {
		h.Redirections = &redirectionSettings{&redirectSettings{r.To, r.Scheme, &r.Permanent, r.Priority}}
	}
	if c := e.EncodedCharacters; c != nil {
		h.EncodedCharacters = &encodedSettings{&c.AllowEncodedSlash, &c.AllowEncodedBackSlash,
			&c.AllowEncodedNullCharacter, &c.AllowEncodedSemicolon, &c.AllowEncodedPercent,
			&c.AllowEncodedQuestionMark, &c.AllowEncodedHash}
	}
	t := e.Timeouts
	s.HTTP = nonzero(h)
	s.Transport = nonzero(transportSettings{LifeCycle: nonzero(lifeCycleSettings{t.AcceptGrace, t.Grace}),
		RespondingTimeouts:   nonzero(timeoutSettings{t.Read, t.Write, t.Idle}),
		KeepAliveMaxRequests: e.MaxRequests, KeepAliveMaxTime: e.MaxAge,
		MaxConnections: e.MaxConnections, MaxConnectionsPerClient: e.MaxConnectionsPerClient,
		SNIStrict: e.SNIStrict})
	return s
}

func acmeOf(r *gateway.Resolver) *acmeSettings {
	a := &acmeSettings{Email: r.Email, CAServer: r.CAServer, Storage: r.Storage, KeyType: r.KeyType,
		CACertificates: r.CACertificates, CAServerName: r.CAServerName, CASystemCertPool: r.CASystemCertPool,
		EAB: r.EAB, PreferredChain: r.PreferredChain, Profile: r.Profile}
	if r.HTTPChallenge != "" {
		a.HTTPChallenge = &httpChallengeSettings{r.HTTPChallenge}
	}
	if r.TLSChallenge {
		a.TLSChallenge = &struct{}{}
	}
	if d := r.DNSChallenge; d != nil {
		a.DNSChallenge = &dnsChallengeSettings{Provider: d.Provider, Resolvers: d.Resolvers,
			DelayBeforeCheck: d.DelayBeforeCheck, DisablePropagationCheck: d.DisableChecks}
	}
	return a
}

// nonzero returns a pointer to a value, and nil if it is zero.
func nonzero[T any](v T) *T {
	if reflect.ValueOf(v).IsZero() {
		return nil
	}
	return &v
}
