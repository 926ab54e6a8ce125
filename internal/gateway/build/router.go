package build

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

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
