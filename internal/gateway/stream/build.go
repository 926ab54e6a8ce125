package stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Build returns the TCP routers by entry point, and what they use: it takes from now what is
// in use already. Faulty objects are left out, and their status says why.
func Build(from Source, now *Use) (map[string]*Routes, *Use) {
	b := &builder{Source: from, now: now, next: NewUse(), services: map[string]Handler{}, building: map[string]bool{},
		entries: map[string]*entryRouters{}, https: map[string]*httpsNames{}}
	b.HTTPS(func(entry string, names []string) {
		h := b.https[entry]
		if h == nil {
			h = &httpsNames{names: map[string]bool{}}
			b.https[entry] = h
		}
		for _, name := range names {
			h.names[name] = true
		}
		h.others = h.others || len(names) == 0
	})
	tcp := from.Config.TCP
	for _, name := range slices.Sorted(maps.Keys(tcp.Services)) {
		b.service(name)
	}
	for name := range tcp.Middlewares {
		b.Status.Disabled(MiddlewareKind, name)
	}
	for _, name := range slices.Sorted(maps.Keys(tcp.Routers)) {
		// The last thing that router does is to add it to its entry points.
		if err := recovery.Object(RouterKind+" "+name, func() { b.router(name, tcp.Routers[name]) }); err != nil {
			b.Status.Disable(RouterKind, name, err.Error())
		}
	}
	return b.finish(), b.next
}

func (b *builder) finish() map[string]*Routes {
	all := map[string]*Routes{}
	for name, e := range b.entries {
		all[name] = &Routes{https: b.https[name], challenges: b.Config.ACME.Challenges,
			plain: newRouteList(e.plain, e.targets), tls: newRouteList(e.tls, e.targets)}
	}
	return all
}

func newRouteList(routers []*route.Router, targets map[string]*target) routeList {
	l := routeList{table: route.NewTable(routers), targets: map[string]*target{}}
	for _, r := range routers {
		l.targets[r.Name] = targets[r.Name]
	}
	return l
}

// router adds a router to its entry points.
func (b *builder) router(name string, value *gateway.TCPRouter) {
	if b.Status.Disabled(RouterKind, name) {
		return
	}
	parsed, err := rule.ParseTCP(value.Rule, cmp.Or(value.RuleSyntax, b.Static.RuleSyntax))
	if err != nil {
		b.Status.Disable(RouterKind, name, err.Error())
		return
	}
	for _, w := range parsed.Warnings() {
		b.Status.Warn(RouterKind, name, w)
	}
	entries := value.EntryPoints
	if len(entries) == 0 {
		entries = b.Static.Default
	}
	to, err := b.target(name, value, parsed)
	if err == nil && to.config != nil {
		err = b.weakened(entries, parsed.Domains(), cmp.Or(value.TLS.Options, "default"))
	}
	if err != nil {
		b.Status.Disable(RouterKind, name, err.Error())
		return
	}
	report := b.Status.Disable
	if slices.ContainsFunc(entries, b.hasEntry) {
		report = b.Status.Warn // it is in use at another entry point
	}
	for _, entry := range entries {
		if !b.hasEntry(entry) {
			report(RouterKind, name, fmt.Sprintf("TCP entry point %s does not exist", entry))
			continue
		}
		b.insert(entry, value.TLS != nil, to, &route.Router{Name: name, Service: value.Service, Rule: parsed,
			Priority: cmp.Or(value.Priority, parsed.Priority())})
	}
}

func (b *builder) hasEntry(name string) bool {
	return slices.ContainsFunc(b.Static.EntryPoints, func(e gateway.EntryPoint) bool {
		return e.Name == name && !e.IsUDP()
	})
}

func (b *builder) insert(entry string, secure bool, to *target, r *route.Router) {
	e := b.entries[entry]
	if e == nil {
		e = &entryRouters{targets: map[string]*target{}}
		b.entries[entry] = e
	}
	e.targets[r.Name] = to
	if secure {
		e.tls = append(e.tls, r)
	} else {
		e.plain = append(e.plain, r)
	}
}

// target returns what serves the router's connections.
func (b *builder) target(name string, value *gateway.TCPRouter, parsed *rule.Rule) (*target, error) {
	if value.TLS == nil && len(parsed.Domains()) > 0 {
		return nil,
			errors.New("HostSNI needs tls: without TLS a client names no server; write HostSNI(`*`), or add tls")
	}
	handler := b.service(value.Service)
	if handler == nil {
		return nil, errors.New(status.Unusable(b.Status, ServiceKind, value.Service, b.Config.TCP.Services))
	}
	for _, m := range slices.Backward(value.Middlewares) {
		var err error
		if handler, err = b.middleware(name, m, handler); err != nil {
			return nil, err
		}
	}
	to := &target{handler: handler, all: parsed.Priority() < 0}
	if value.TLS == nil || value.TLS.Passthrough {
		return to, nil
	}
	options := b.Options[cmp.Or(value.TLS.Options, "default")]
	if options == nil {
		return nil, fmt.Errorf("TLS options %s cannot be used", value.TLS.Options)
	}
	to.config = b.next.config(b.now, options)
	return to, nil
}

// weakened returns an error if HTTPS routers take connections for one of the names, under weaker
// options.
func (b *builder) weakened(entries, names []string, options string) error {
	for _, entry := range entries {
		for _, name := range names {
			if !b.https[entry].has(name) {
				continue
			}
			if other := b.Weaker(entry, name, options); other != "" {
				return fmt.Errorf("HTTPS routers take the connections for %s at entry point %s, with the TLS options %s, "+
					"which are not as strict as %s: use the same options", name, entry, other, options)
			}
		}
	}
	return nil
}

// middleware puts the middleware of a router before the handler.
func (b *builder) middleware(router, name string, next Handler) (Handler, error) {
	value := b.Config.TCP.Middlewares[name]
	if value == nil || b.Status.Disabled(MiddlewareKind, name) {
		return nil, errors.New(status.Unusable(b.Status, MiddlewareKind, name, b.Config.TCP.Middlewares))
	}
	list := cmp.Or(value.IPAllowList, value.IPWhiteList)
	var err error
	switch {
	case list != nil && len(list.SourceRange) == 0:
		err = errors.New("ipAllowList: sourceRange is empty, so it would refuse all clients")
	case list != nil:
		prefixes, bad := Prefixes(list.SourceRange)
		if err = bad; err == nil {
			return AllowList(prefixes, next), nil
		}
	case value.InFlightConn != nil && value.InFlightConn.Amount > 0:
		former := b.Config.FormerName(RouterKind, router) + " " + b.Config.FormerName(MiddlewareKind, name)
		return b.next.limiter(b.now, router+" "+name, former).Limit(value.InFlightConn.Amount, next), nil
	default:
		err = errors.New("inFlightConn: amount must be at least 1")
	}
	b.Status.Disable(MiddlewareKind, name, err.Error())
	return nil, errors.New(status.Unusable(b.Status, MiddlewareKind, name, b.Config.TCP.Middlewares))
}
