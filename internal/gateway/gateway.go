// Package gateway is the HTTP gateway: it accepts requests at entry points, finds the
// router of each, and sends them through middlewares to the servers of a service.
//
// Theory of operation. A configuration becomes an immutable snapshot; requests take
// the snapshot of the moment when they arrive, so a change never waits for requests,
// nor they for it. What must survive changes is kept apart by key: servers with their
// connections, their conditions in each service, and health checks. Faulty objects are
// left out alone, and their status has the reason.
package gateway

import (
	"crypto/tls"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// Gateway serves the requests of its entry points.
type Gateway struct {
	static gateway.Static
	// defaults are the time limits of entry points that set none.
	defaults gateway.TimeLimits
	log      *slog.Logger
	observer *observe.Observer
	current  atomic.Pointer[snapshot]
	began    time.Time
	// own is the certificate for names that no other has.
	own     *tls.Certificate
	tickets *tlsconfig.Tickets
	// open has the connections of all entry points.
	open connections
	// left is closed by Leave, hurried by Hurry; terminating is true when the gateway is about
	// to end.
	left, hurried chan struct{}
	leave, hurry  sync.Once
	terminating   atomic.Bool
	last          atomic.Bool
	// progress counts what changes of the configuration have done.
	progress atomic.Uint64

	// mu protects what follows, which only changes of the configuration use.
	mu       sync.Mutex
	services *services.Services
	kept     kept
	streams  *stream.Use
	// datagrams are the servers of UDP services.
	datagrams datagram.Use
}

// New returns a gateway that has no routers yet.
func New(static gateway.Static, log *slog.Logger) (*Gateway, error) {
	o, err := observe.New(&static)
	if err != nil {
		return nil, err
	}
	own, err := tlsconfig.SelfSigned()
	if err != nil {
		return nil, err
	}
	g := &Gateway{static: static, defaults: gateway.DefaultTimeLimits(), log: log, observer: o, began: time.Now(),
		own: own, tickets: tlsconfig.NewTickets(), left: make(chan struct{}), hurried: make(chan struct{}),
		services: services.New(log, o.Metrics), kept: newKept(),
		streams: stream.NewUse()}
	g.Apply(&gateway.Config{}, nil)
	if o.Metrics.HasServices() {
		o.Metrics.Registry.MustRegister(serversUp{g})
	}
	return g, nil
}

// Apply replaces the configuration. known are the objects whose status is known
// already, such as routers with faulty labels. It returns the status of all objects.
// Objects that did not change stay as they are, with their state; the caller must not
// change the configuration or a part of it afterwards.
func (g *Gateway) Apply(config *gateway.Config, known []status.Status) []status.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, b := g.build(config, known)
	g.observer.Metrics.Configure(b.config, namesOfKind(b.changed, "router"), namesOfKind(b.changed, "service"))
	g.current.Store(next)
	for _, name := range namesOfKind(b.changed, "service") {
		g.progress.Add(1)
		g.services.Follow(name, b.stateOf(name))
	}
	for _, dropped := range b.dropped {
		g.services.Release(dropped.state)
	}
	g.services.Inherited()
	b.streamUse.Start(g.streams)
	g.streams = b.streamUse
	b.datagramUse.Start(g.datagrams)
	g.datagrams = b.datagramUse
	g.observer.Metrics.Configured(slices.Collect(maps.Values(next.tls.certificates)))
	return next.statuses
}

// Progress returns a number that grows while Apply works. It may be called concurrently: who waits for Apply
// sees whether it still works.
func (g *Gateway) Progress() uint64 { return g.progress.Load() }

// Status returns the status of all objects.
func (g *Gateway) Status() []status.Status { return g.current.Load().statuses }

// LogTo writes the access log to the file from now on, and closes the file before.
func (g *Gateway) LogTo(file *os.File) { g.observer.LogTo(file) }

// Close ends the checks, closes the connections to servers and completes the access log.
func (g *Gateway) Close() {
	g.Apply(&gateway.Config{}, nil)
	g.observer.Flush()
}
