package stream

import (
	"crypto/tls"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"

	"fairlead/internal/model/gateway"
)

// Use is what services and middlewares keep when the configuration changes.
type Use struct {
	servers  map[string]*Server
	limiters map[string]*Limiter
	checks   map[string]*check
	// turns count the turns of services.
	turns map[string]*atomic.Uint64
	// configs are those that terminate TLS, by the TLS options that they are made of.
	configs map[*tls.Config]*tls.Config
}

// check is a check of a service's servers.
type check struct {
	value     Check
	servers   []*Server
	transport *Transport
	log       *slog.Logger
	depends   depends
	stop      func()
}

// depends has what a check depends on besides servers.
type depends struct {
	check     gateway.TCPHealthCheck
	transport gateway.TCPServersTransport
}

// NewUse returns that of the empty configuration.
func NewUse() *Use {
	return &Use{map[string]*Server{}, map[string]*Limiter{}, map[string]*check{}, map[string]*atomic.Uint64{},
		map[*tls.Config]*tls.Config{}}
}

// Start starts the checks of a configuration that is put to use, except for those that the
// last one has too; it ends the others of that.
func (u *Use) Start(last *Use) {
	for name, c := range last.checks {
		w := u.checks[name]
		if w != nil && reflect.DeepEqual(w.depends, c.depends) && slices.Equal(w.servers, c.servers) {
			u.checks[name] = c
			continue
		}
		c.stop()
	}
	for name, c := range u.checks {
		if c.stop == nil {
			c.stop = c.value.Start(c.servers, c.transport, func(s *Server, down bool, why string) {
				c.log.Info("server changed", "TCP service", name, "server", s.Address, "down", down, "reason", why)
			})
		}
	}
}

// Down returns the addresses of a service's servers that checks have found down.
func (u *Use) Down(service string) []string {
	var down []string
	if c := u.checks[service]; c != nil {
		for _, s := range c.servers {
			if s.Down() {
				down = append(down, s.Address)
			}
		}
	}
	return down
}

// server returns the server of a service: the one that is in use if there is one.
func (u *Use) server(now *Use, service string, s *Server) *Server {
	key := service + " " + s.Address
	if s.TLS {
		key += " with TLS"
	}
	return Keep(u.servers, now.servers, key, func() *Server { return s })
}

func (u *Use) turn(now *Use, service string) *atomic.Uint64 {
	return Keep(u.turns, now.turns, service, func() *atomic.Uint64 { return new(atomic.Uint64) })
}

// limiter returns the limiter with a key. It may have had another one.
func (u *Use) limiter(now *Use, key, former string) *Limiter {
	if old := now.limiters[former]; old != nil && u.limiters[key] == nil {
		u.limiters[key] = old
	}
	return Keep(u.limiters, now.limiters, key, NewLimiter)
}

// config returns the configuration with the options. It stays the same as long as they do, so
// that clients can resume their sessions.
func (u *Use) config(now *Use, options *tls.Config) *tls.Config {
	return Keep(u.configs, now.configs, options, func() *tls.Config {
		c := options.Clone()
		// Clients of PostgreSQL that begin with the handshake accept no other protocol.
		c.NextProtos = append(slices.Clone(options.NextProtos), "postgresql")
		return c
	})
}

// Keep returns the value of a new configuration: that of the running one if it has one.
func Keep[K comparable, T any](next, now map[K]*T, key K, create func() *T) *T {
	if next[key] == nil {
		next[key] = now[key]
	}
	if next[key] == nil {
		next[key] = create()
	}
	return next[key]
}
