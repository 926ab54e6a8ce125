// Package gateway is the HTTP gateway: it accepts requests at entry points, finds the
// router of each, and sends them through middlewares to the servers of a service.
//
// Theory of operation. A configuration becomes an immutable snapshot; requests take
// the snapshot of the moment when they arrive, so a change never waits for requests,
// nor they for it. What must survive changes is kept apart by key: servers with their
// connections and conditions, and health checks. Faulty objects are left out alone,
// and their status has the reason.
package gateway

import (
	"crypto/tls"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/model/gateway"
)

// Gateway serves the requests of its entry points.
type Gateway struct {
	static   gateway.Static
	log      *slog.Logger
	observer *observer
	current  atomic.Pointer[snapshot]
	began    time.Time
	// own is the certificate for names that no other has.
	own *tls.Certificate

	// mu protects what follows, which only changes of the configuration use.
	mu      sync.Mutex
	running map[string]*server
	checks  map[string]runningCheck
}

// runningCheck is a check with what it was started for.
type runningCheck struct {
	*checks
	of checkOf
}

// New returns a gateway that has no routers yet.
func New(static gateway.Static, log *slog.Logger) (*Gateway, error) {
	o, err := newObserver(static)
	if err != nil {
		return nil, err
	}
	own, err := selfSigned()
	if err != nil {
		return nil, err
	}
	g := &Gateway{static: static, log: log, observer: o, began: time.Now(), own: own, running: map[string]*server{},
		checks: map[string]runningCheck{}}
	g.Apply(&gateway.Config{}, nil)
	return g, nil
}

// Apply replaces the configuration. known are the objects whose status is known
// already, such as routers with faulty labels. It returns the status of all objects.
func (g *Gateway) Apply(config *gateway.Config, known []Status) []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, checked := g.build(config, known)
	g.current.Store(next)
	g.follow(checked)
	for key, s := range g.running {
		if next.used[key] == nil {
			s.forward.Close()
		}
	}
	g.running = maps.Clone(next.used)
	g.observer.configured(next)
	return next.statuses
}

// Status returns the status of all objects.
func (g *Gateway) Status() []Status { return g.current.Load().statuses }

// follow stops and starts checks, and keeps those that stay the same.
func (g *Gateway) follow(wanted map[string]checkOf) {
	for name, c := range g.checks {
		if w, ok := wanted[name]; !ok || !w.equal(c.of) {
			c.stop()
			delete(g.checks, name)
		}
	}
	for name, w := range wanted {
		if _, ok := g.checks[name]; ok {
			continue
		}
		transport, err := newTransport(w.via)
		if err != nil {
			g.log.Warn("cannot check servers", "service", name, "error", err)
			continue
		}
		g.checks[name] = runningCheck{startChecks(w.value, w.servers, transport,
			func(s *server, down bool, why string) {
				g.log.Info("server changed", "service", name, "server", s.url.String(), "down", down, "reason", why)
				g.observer.serverChanged(name, s.url.String(), !down)
			}), w}
	}
}

// Close ends the checks and closes the connections to servers.
func (g *Gateway) Close() {
	g.Apply(&gateway.Config{}, nil)
}
