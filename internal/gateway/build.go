package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// snapshot is all that requests need of one configuration. It does not change.
type snapshot struct {
	entries  map[string]*entryRoutes
	tls      *tlsNames
	statuses []Status
	config   *gateway.Config
	// used are the servers and checks that the snapshot keeps alive.
	used map[string]*server
}

// entryRoutes are the routers of one entry point. Connections with TLS see only
// routers with TLS, others only those without.
type entryRoutes struct {
	plain, tls *route.Table
}

func (e *entryRoutes) of(secure bool) *route.Table {
	if secure {
		return e.tls
	}
	return e.plain
}

// builder makes a snapshot.
type builder struct {
	*Gateway
	config *gateway.Config
	status statuses
	// services has the handlers of services that are built, nil for those that cannot
	// be. building has those on the way, to find cycles.
	services map[string]http.Handler
	building map[string]bool
	used     map[string]*server
	checked  map[string]checkOf
	routers  map[string][2][]*route.Router
	tls      *tlsNames
}

// build makes a snapshot of the configuration. Faulty objects are left out; their
// status says why.
func (g *Gateway) build(config *gateway.Config, known []Status) (*snapshot, map[string]checkOf) {
	b := &builder{Gateway: g, config: config, status: statuses{}, services: map[string]http.Handler{},
		building: map[string]bool{}, used: map[string]*server{}, checked: map[string]checkOf{},
		routers: map[string][2][]*route.Router{}, tls: newTLSNames()}
	for _, s := range known {
		b.status.add(s)
	}
	b.internalServices()
	b.addTLS()
	for _, name := range slices.Sorted(maps.Keys(config.HTTP.Services)) {
		b.service(name)
	}
	for _, name := range slices.Sorted(maps.Keys(config.HTTP.Middlewares)) {
		b.status.of("middleware", name)
	}
	for _, name := range slices.Sorted(maps.Keys(config.HTTP.Routers)) {
		b.addRouter(name, config.HTTP.Routers[name])
	}
	b.addStreams()
	b.addRedirections()
	return b.finish(), b.checked
}

func (b *builder) finish() *snapshot {
	s := &snapshot{entries: map[string]*entryRoutes{}, tls: b.tls, statuses: b.status.sorted(), config: b.config,
		used: b.used}
	for _, e := range b.static.EntryPoints {
		lists := b.routers[e.Name]
		s.entries[e.Name] = &entryRoutes{plain: route.NewTable(lists[0]), tls: route.NewTable(lists[1])}
	}
	return s
}

// addRouter adds a router to its entry points.
func (b *builder) addRouter(name string, value *gateway.Router) {
	status := b.status.of("router", name)
	if status.State == Disabled {
		return
	}
	parsed, err := rule.Parse(value.Rule, cmp.Or(value.RuleSyntax, b.static.RuleSyntax))
	if err != nil {
		b.status.disable("router", name, err.Error())
		return
	}
	for _, w := range parsed.Warnings() {
		b.status.warn("router", name, w)
	}
	if value.Observability != nil {
		b.status.warn("router", name, "observability has no effect yet: its requests are logged and counted like others")
	}
	service := b.service(value.Service)
	if service == nil {
		b.status.disable("router", name, b.serviceProblem(value.Service))
		return
	}
	entries := value.EntryPoints
	if len(entries) == 0 {
		entries = b.static.Default
	}
	for _, at := range entries {
		if err := b.addAt(at, name, value, parsed, service); err != nil {
			b.status.disable("router", name, err.Error())
		}
	}
}

// serviceProblem says why a router's service cannot be used.
func (b *builder) serviceProblem(name string) string {
	switch {
	case name == "":
		return "it names no service, and there is not exactly one that it could mean"
	case b.config.HTTP.Services[name] == nil:
		return fmt.Sprintf("service %s does not exist%s", name, nearest(name, b.config.HTTP.Services))
	}
	return fmt.Sprintf("service %s is disabled", name)
}

// addAt adds the router to one entry point.
func (b *builder) addAt(entry, name string, value *gateway.Router, parsed *rule.Rule, service http.Handler) error {
	i := slices.IndexFunc(b.static.EntryPoints, func(e gateway.EntryPoint) bool { return e.Name == entry })
	if i < 0 {
		return fmt.Errorf("entry point %s does not exist", entry)
	}
	at := b.static.EntryPoints[i]
	chain := slices.Concat(at.Middlewares, value.Middlewares)
	handler, err := b.chained(chain, service)
	if err != nil {
		return err
	}
	priority := cmp.Or(value.Priority, parsed.Priority())
	secure := cmp.Or(value.TLS, at.TLS)
	r := &route.Router{Name: name, Service: value.Service, Rule: parsed, Priority: priority, Handler: handler}
	b.insert(entry, secure != nil, r)
	if secure != nil {
		b.tls.addRouter(entry, parsed, secure)
		if secure.CertResolver != "" {
			b.status.warn("router", name, "certificates by ACME are not supported yet: its clients get a certificate from "+
				"files, or the default one")
		}
	}
	return nil
}

func (b *builder) insert(entry string, secure bool, r *route.Router) {
	lists := b.routers[entry]
	if secure {
		lists[1] = append(lists[1], r)
	} else {
		lists[0] = append(lists[0], r)
	}
	b.routers[entry] = lists
}

// chained puts the middlewares before the handler.
func (b *builder) chained(names []string, handler http.Handler) (http.Handler, error) {
	for _, name := range slices.Backward(names) {
		wrap, err := b.middleware(name)
		if err != nil {
			return nil, err
		}
		handler = wrap(handler)
	}
	return handler, nil
}

func (b *builder) middleware(name string) (func(http.Handler) http.Handler, error) {
	value := b.config.HTTP.Middlewares[name]
	if value == nil {
		return nil, fmt.Errorf("middleware %s does not exist%s", name, nearest(name, b.config.HTTP.Middlewares))
	}
	if at := b.status.of("middleware", name); at.State == Disabled {
		return nil, fmt.Errorf("middleware %s is disabled", name)
	}
	deps := middleware.Deps{
		Middleware: func(inner string) (string, *gateway.Middleware, error) {
			value := b.config.HTTP.Middlewares[inner]
			if value == nil {
				return inner, nil, fmt.Errorf("middleware %s does not exist%s", inner,
					nearest(inner, b.config.HTTP.Middlewares))
			}
			return inner, value, nil
		},
		Service: b.part,
	}
	wrap, err := middleware.New(name, value, deps)
	if err != nil {
		b.status.disable("middleware", name, err.Error())
		return nil, fmt.Errorf("middleware %s: %w", name, err)
	}
	return wrap, nil
}

// redirectPriority is above all priorities of users.
const redirectPriority = math.MaxInt - 1

// addRedirections adds a router to each entry point that redirects all requests.
func (b *builder) addRedirections() {
	for _, e := range b.static.EntryPoints {
		if e.Redirect == nil {
			continue
		}
		name := e.Name + "-to-" + e.Redirect.To + "@internal"
		wrap, err := middleware.New(name, &gateway.Middleware{RedirectScheme: &gateway.RedirectScheme{
			Scheme: cmp.Or(e.Redirect.Scheme, "https"), Port: b.portOf(e.Redirect.To), Permanent: e.Redirect.Permanent,
		}}, middleware.Deps{})
		if err != nil {
			b.status.disable("router", name, err.Error())
			continue
		}
		parsed, err := rule.Parse("HostRegexp(`^.+$`)", "v3")
		if err != nil {
			panic(err) // the rule is constant
		}
		b.status.of("router", name)
		b.insert(e.Name, false, &route.Router{Name: name, Service: "noop@internal", Rule: parsed,
			Priority: cmp.Or(e.Redirect.Priority, redirectPriority), Handler: wrap(b.services["noop@internal"])})
	}
}

// portOf returns the port of the entry point, or the text itself if it is ":PORT".
func (b *builder) portOf(to string) string {
	for _, e := range b.static.EntryPoints {
		if e.Name == to {
			return portOfAddress(e.Address)
		}
	}
	return portOfAddress(to)
}
