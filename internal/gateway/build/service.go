package build

import (
	"errors"
	"net/http"
	"slices"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/status"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// service returns the handler of the service, nil if it cannot be used.
func (b *builder) service(name string) http.Handler {
	b.need("service", name)
	if h := b.Internal[name]; h != nil {
		return h
	}
	if s := b.kept.services[name]; s != nil {
		return s.handler
	}
	value := b.config.HTTP.Services[name]
	if value == nil {
		return nil
	}
	if b.status.Disabled("service", name) {
		return nil
	}
	if b.building[name] {
		b.status.Disable("service", name, "it contains itself")
		return nil
	}
	b.building[name] = true
	outer := b.now
	b.now = new(parts)
	from := services.Source{Part: b.part, Transport: b.transport,
		Warn: func(note string) { b.status.Warn("service", name, note) }}
	if old := formerly(b, "service", name, b.dropped); old != nil {
		b.now.last, from.Last = old.states, old.state
	}
	from.Next = services.NewState(from.Last)
	h, err := b.chainedService(name, value, from)
	if err != nil {
		b.status.Disable("service", name, err.Error())
		h, b.now.states = nil, b.now.last
	}
	b.kept.services[name] = &builtService{handler: h, needs: b.now.needs, state: from.Next,
		states: b.now.states}
	b.now = outer
	return h
}

// chainedService returns the service behind its middlewares.
func (b *builder) chainedService(name string, value *gateway.Service, from services.Source) (h http.Handler,
	err error) {
	service := b.now
	failed := recovery.Object("service "+name, func() {
		if h, err = b.Services.Build(name, value, from); err == nil {
			h, err = b.chained("", value.Middlewares, h)
		}
	})
	if failed == nil {
		return h, err
	}
	// The servers that it has taken are in the state of the service, and are released with it.
	b.now = service
	return nil, failed
}

// part returns a service that another consists of.
func (b *builder) part(name string) (http.Handler, error) {
	if h := b.service(name); h != nil {
		return h, nil
	}
	return nil, errors.New(b.serviceProblem(name))
}

// transport returns the named transport, or the default one.
func (b *builder) transport(name string) (*gateway.ServersTransport, error) {
	if name == "" || name == "default@internal" {
		return &b.Static.Transport, nil
	}
	b.need("transport", name)
	if t := b.config.HTTP.ServersTransports[name]; t != nil && !b.status.Disabled("transport", name) {
		return t, nil
	}
	return nil, errors.New(status.Unusable(b.status, "transport", name, b.config.HTTP.ServersTransports))
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
