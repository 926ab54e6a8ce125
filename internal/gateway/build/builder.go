package build

import (
	"cmp"
	"errors"
	"math"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
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

// stateOf returns the state of a service, nil if it cannot be used.
func (b *builder) stateOf(name string) *services.State {
	if s := b.kept.services[name]; s != nil && s.handler != nil {
		return s.state
	}
	return nil
}
