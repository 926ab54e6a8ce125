package build

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// builder makes a snapshot from the last one and the changes.
type builder struct {
	*Objects
	config *gateway.Config
	status *status.Table
	// changed are the objects that are built again, or that are gone.
	changed map[status.Object]bool
	known   []status.Status
	// rules are those that this build has parsed.
	rules map[string]*rule.Rule
	// old are the routers before the change, dropped the services.
	old     map[string]*builtRouter
	dropped map[string]*builtService
	// building has the services on the way, to find cycles.
	building map[string]bool
	// now is what the object on the way consists of.
	now    *parts
	tables tableChanges
	tls    *snapshot.Names
	// streams are the TCP routers, streamUse what they use.
	streams     map[string]*stream.Routes
	streamUse   *stream.Use
	datagrams   map[string]*datagram.Route
	datagramUse datagram.Use
}

// parts are what a router or a service consists of.
type parts struct {
	needs  []status.Object
	placed []placed
	tls    []hosttls.Use
	// last and states are the middlewares before and after the change, by entry point; those
	// of a service have none.
	last, states map[string]middleware.States
}

// build makes a snapshot of the configuration. Faulty objects are left out; their
// status says why.
func (o *Objects) build(config *gateway.Config, known []status.Status) (*snapshot.Snapshot, *builder) {
	known = slices.Concat(known, certificateProblems(config))
	changed := o.kept.changes(config, known)
	b := &builder{Objects: o, config: config, status: &o.kept.statuses, changed: changed, known: known,
		old: map[string]*builtRouter{}, dropped: map[string]*builtService{}, building: map[string]bool{},
		now: new(parts), tables: tableChanges{}, rules: map[string]*rule.Rule{}}
	others := b.status.Begin(changed)
	for _, s := range known {
		if !status.Lasts(s.Kind) || changed[status.Object{Kind: s.Kind, Name: s.Name}] {
			b.status.Add(s)
		}
	}
	if o.Current.Load() == nil {
		b.addInternal()
		b.addRedirections()
	}
	same := b.keepTLS(others)
	if !same {
		b.addTLS()
	}
	b.decideTLS(same)
	b.addChallenges()
	b.drop()
	b.addChanged()
	b.addStreams()
	o.kept.config, o.kept.known = *config, known
	return b.finish(), b
}

// drop removes the changed services and routers.
func (b *builder) drop() {
	for o := range b.changed {
		switch o.Kind {
		case "service":
			if s := b.kept.services[o.Name]; s != nil {
				b.dropped[o.Name] = s
				delete(b.kept.services, o.Name)
			}
		case "router":
			if r := b.kept.routers[o.Name]; r != nil {
				b.old[o.Name] = r
				b.tables.remove(r.placed)
				delete(b.kept.routers, o.Name)
			}
		}
	}
}

// formerly returns the object of the last configuration that an object replaces. It may have had another name.
func formerly[T any](b *builder, kind, name string, replaced map[string]*T) *T {
	if old := replaced[b.config.FormerName(kind, name)]; old != nil {
		return old
	}
	return replaced[name]
}

// addChanged builds the changed objects that are in the configuration.
func (b *builder) addChanged() {
	for _, name := range slices.Sorted(maps.Keys(b.config.HTTP.ServersTransports)) {
		b.status.Of("transport", name)
	}
	for _, name := range namesOfKind(b.changed, "service") {
		b.service(name)
	}
	for _, name := range namesOfKind(b.changed, "middleware") {
		if value := b.config.HTTP.Middlewares[name]; value != nil {
			b.status.Of("middleware", name)
			for _, note := range middleware.Unused(value) {
				b.status.Warn("middleware", name, note)
			}
		}
	}
	for _, name := range namesOfKind(b.changed, "router") {
		if value := b.config.HTTP.Routers[name]; value != nil {
			b.addRouter(name, value)
		}
	}
}

func (b *builder) finish() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Entries: map[string]*snapshot.Routes{}, TLS: b.tls, Statuses: b.status.Sorted(),
		Config: b.config, Streams: b.streams, Datagrams: b.datagrams}
	for _, e := range b.Static.EntryPoints {
		before := &snapshot.Routes{}
		if last := b.Current.Load(); last != nil {
			before = last.Entries[e.Name]
		}
		s.Entries[e.Name] = &snapshot.Routes{Plain: b.tables.apply(before.Plain, tableKey{e.Name, false}),
			TLS: b.tables.apply(before.TLS, tableKey{e.Name, true})}
	}
	return s
}

// addRouter adds a router to its entry points.
func (b *builder) addRouter(name string, value *gateway.Router) {
	if b.status.Disabled("router", name) {
		return
	}
	outer := b.now
	b.now = new(parts)
	if old := formerly(b, "router", name, b.old); old != nil {
		b.now.last = old.states
	}
	var parsed *rule.Rule
	router := b.now
	if err := recovery.Object("router "+name, func() { parsed = b.addParsed(name, value) }); err != nil {
		// The tables have no router yet, and what the services on the way had is theirs.
		b.now = router
		b.now.placed, b.now.tls = nil, nil
		b.status.Disable("router", name, err.Error())
	}
	if len(b.now.placed) == 0 {
		b.now.states = b.now.last // it may be usable again with the next change
	}
	b.kept.routers[name] = &builtRouter{rule: parsed, needs: b.now.needs, placed: b.now.placed, tls: b.now.tls,
		states: b.now.states}
	b.tables.add(b.now.placed)
	b.now = outer
}

// addParsed adds a router and returns its rule, nil if that cannot be parsed.
func (b *builder) addParsed(name string, value *gateway.Router) *rule.Rule {
	parsed, err := b.parse(name, value)
	if err != nil {
		b.status.Disable("router", name, err.Error())
		return nil
	}
	for _, w := range parsed.Warnings() {
		b.status.Warn("router", name, w)
	}
	if o := value.Observability; o != nil && (o.Tracing != nil && *o.Tracing || o.TraceVerbosity != "") {
		b.status.Warn("router", name, "observability.tracing has no effect: the gateway passes the trace context of "+
			"requests on, and records no spans")
	}
	service := b.service(value.Service)
	if service == nil {
		b.status.Disable("router", name, b.serviceProblem(value.Service))
		return parsed
	}
	if !b.allows(name) {
		return parsed
	}
	var missing []string
	for _, at := range b.entriesOf(value) {
		if err := b.addAt(at, name, value, parsed, service); err != nil {
			missing = append(missing, err.Error())
		}
	}
	b.reportMissing(name, missing)
	return parsed
}

// reportMissing reports why the router on the way is missing at entry points. As in Traefik, one that is in
// use at another entry point is doubtful only.
func (b *builder) reportMissing(name string, reasons []string) {
	report := b.status.Warn
	if len(b.now.placed) == 0 {
		report = b.status.Disable
	}
	for _, reason := range reasons {
		report("router", name, reason)
	}
}

// entriesOf returns the names of the router's entry points.
func (b *builder) entriesOf(value *gateway.Router) []string {
	if len(value.EntryPoints) == 0 {
		return b.Static.Default
	}
	return value.EntryPoints
}

// parse returns the rule of a router: the last one if its text is the same.
func (b *builder) parse(name string, value *gateway.Router) (*rule.Rule, error) {
	last, old := b.kept.config.HTTP.Routers[name], cmp.Or(b.old[name], b.kept.routers[name])
	if old != nil && old.rule != nil && last != nil && last.Rule == value.Rule && last.RuleSyntax == value.RuleSyntax {
		return old.rule, nil
	}
	if parsed := b.rules[name]; parsed != nil {
		return parsed, nil
	}
	parsed, err := rule.Parse(value.Rule, cmp.Or(value.RuleSyntax, b.Static.RuleSyntax))
	b.rules[name] = parsed
	return parsed, err
}

// serviceProblem says why a router's service cannot be used.
func (b *builder) serviceProblem(name string) string {
	if name == "" {
		return "it names no service, and there is not exactly one that it could mean"
	}
	return status.Unusable(b.status, "service", name, b.config.HTTP.Services)
}

// addAt adds the router to one entry point.
func (b *builder) addAt(entry, name string, value *gateway.Router, parsed *rule.Rule, service http.Handler) error {
	i := slices.IndexFunc(b.Static.EntryPoints, func(e gateway.EntryPoint) bool { return e.Name == entry })
	if i < 0 {
		return fmt.Errorf("entry point %s does not exist", entry)
	}
	at := b.Static.EntryPoints[i]
	chain := slices.Concat(at.Middlewares, value.Middlewares)
	handler, err := b.chained(entry, chain, service)
	if err != nil {
		return err
	}
	priority := cmp.Or(value.Priority, parsed.Priority())
	options := hosttls.At(at, value)
	r := &route.Router{Name: name, Service: value.Service, Rule: parsed, Priority: priority, Handler: handler}
	if options != "" {
		use := hosttls.NewUse(entry, options, parsed)
		r.Options, r.Hostless = options, use.Open
		b.now.tls = append(b.now.tls, use)
	}
	b.Observer.Router(entry, r, value.Observability, at.Observability)
	b.now.placed = append(b.now.placed, placed{entry, options != "", r})
	return nil
}

// chained puts the middlewares before the handler, at an entry point.
func (b *builder) chained(entry string, names []string, handler http.Handler) (http.Handler, error) {
	if len(names) > 0 {
		if b.now.states == nil {
			b.now.states = map[string]middleware.States{}
		}
		b.now.states[entry] = middleware.States{}
	}
	for _, name := range slices.Backward(names) {
		wrap, err := b.middleware(entry, name)
		if err != nil {
			return nil, err
		}
		handler = wrap(handler)
	}
	return handler, nil
}

func (b *builder) middleware(entry, name string) (func(http.Handler) http.Handler, error) {
	b.need("middleware", name)
	value := b.config.HTTP.Middlewares[name]
	if value == nil || b.status.Disabled("middleware", name) {
		return nil, b.noMiddleware(name)
	}
	deps := middleware.Deps{
		Middleware: func(inner string) (string, *gateway.Middleware, error) {
			b.need("middleware", inner)
			value := b.config.HTTP.Middlewares[inner]
			if value == nil {
				return inner, nil, b.noMiddleware(inner)
			}
			return inner, value, nil
		},
		Service: b.part,
		Last:    b.now.last[entry], Next: b.now.states[entry],
	}
	var wrap func(http.Handler) http.Handler
	var err error
	// The states that it has begun stay in Next, where only this middleware reads them.
	if failed := recovery.Object("middleware "+name, func() {
		wrap, err = middleware.New(name, value,
			deps)
	}); failed != nil {
		err = failed
	}
	if err != nil {
		b.status.Disable("middleware", name, err.Error())
		return nil, b.noMiddleware(name)
	}
	return wrap, nil
}

// noMiddleware says why a middleware cannot be used.
func (b *builder) noMiddleware(name string) error {
	return errors.New(status.Unusable(b.status, "middleware", name, b.config.HTTP.Middlewares))
}

// need records that the object on the way is built again if the other one changes.
func (b *builder) need(kind, name string) {
	b.now.needs = append(b.now.needs, status.Object{Kind: kind, Name: name})
	b.progress.Add(1)
}

// redirectPriority is above all priorities of users.
const redirectPriority = math.MaxInt - 1

// addRedirections adds a router to each entry point that redirects all requests.
func (b *builder) addRedirections() {
	for _, e := range b.Static.EntryPoints {
		if e.Redirect == nil {
			continue
		}
		name := e.Name + "-to-" + e.Redirect.To + "@internal"
		wrap, err := middleware.New(name, &gateway.Middleware{RedirectScheme: &gateway.RedirectScheme{
			Scheme: cmp.Or(e.Redirect.Scheme, "https"), Port: b.portOf(e.Redirect.To), Permanent: e.Redirect.Permanent,
		}}, middleware.Deps{})
		if err != nil {
			b.status.Disable("router", name, err.Error())
			continue
		}
		parsed, err := rule.Parse("HostRegexp(`^.+$`)", "v3")
		if err != nil {
			panic(err) // the rule is constant
		}
		b.status.Of("router", name)
		r := &route.Router{Name: name, Service: "noop@internal", Rule: parsed,
			Priority: cmp.Or(e.Redirect.Priority, redirectPriority), Handler: wrap(b.Internal["noop@internal"])}
		b.Observer.Router(e.Name, r)
		b.tables.add([]placed{{e.Name, false, r}})
	}
}

// portOf returns the port of the entry point, or the text itself if it is ":PORT".
func (b *builder) portOf(to string) string {
	for _, e := range b.Static.EntryPoints {
		if e.Name == to {
			return snapshot.PortOf(e.Address)
		}
	}
	return snapshot.PortOf(to)
}
