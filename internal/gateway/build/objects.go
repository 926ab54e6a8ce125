// Package build makes the snapshot of a configuration from the last one and the changes.
//
// Objects owns what survives changes: routers and services as they were built (kept.go), and what TCP and UDP routers
// use. A builder (builder.go) works for one change: it finds the objects that differ and those that need them, drops
// them, decides the TLS options of hosts (tls.go, hosts.go), and builds them again. A faulty object is left out alone,
// and its status has the reason. The package serves no request, and starts the checks and streams of a configuration
// only when its snapshot is in use.
package build

import (
	"crypto/tls"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// Settings are what the objects of all configurations have in common.
type Settings struct {
	Static   *gateway.Static
	Log      *slog.Logger
	Observer *observe.Observer
	Services *services.Services
	// Current is replaced with each configuration.
	Current *snapshot.Current
	// Internal are the gateway's own services.
	Internal map[string]http.Handler
}

// Objects builds the objects of configurations. Its methods may be called concurrently.
type Objects struct {
	Settings
	// own is the certificate for names that no other has.
	own *tls.Certificate
	// progress counts what changes of the configuration have done.
	progress atomic.Uint64

	// mu protects what follows, and the services.
	mu        sync.Mutex
	kept      kept
	streams   *stream.Use
	datagrams datagram.Use
}

// New returns the objects of an empty configuration.
func New(s Settings) (*Objects, error) {
	own, err := tlsconfig.SelfSigned()
	if err != nil {
		return nil, err
	}
	o := &Objects{Settings: s, own: own, kept: newKept(), streams: stream.NewUse()}
	o.Apply(&gateway.Config{}, nil)
	if s.Observer.Metrics.HasServices() {
		s.Observer.Metrics.Registry.MustRegister(serversUp{o})
	}
	return o, nil
}

// Apply replaces the configuration. known are the objects whose status is known
// already, such as routers with faulty labels. It returns the status of all objects.
// Objects that did not change stay as they are, with their state; the caller must not
// change the configuration or a part of it afterwards.
func (o *Objects) Apply(config *gateway.Config, known []status.Status) []status.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, b := o.build(config, known)
	metrics := o.Observer.Metrics
	metrics.Configure(config, namesOfKind(b.changed, "router"), namesOfKind(b.changed, "service"))
	o.Current.Store(next)
	for _, name := range namesOfKind(b.changed, "service") {
		o.progress.Add(1)
		o.Services.Follow(name, b.stateOf(name))
	}
	for _, dropped := range b.dropped {
		o.Services.Release(dropped.state)
	}
	o.Services.Inherited()
	b.streamUse.Start(o.streams)
	o.streams = b.streamUse
	b.datagramUse.Start(o.datagrams)
	o.datagrams = b.datagramUse
	metrics.Configured(slices.Collect(maps.Values(next.TLS.Certificates)))
	return next.Statuses
}

// Check replaces the configuration by one that serves nothing: no server is checked, and no connection to one is kept.
func (o *Objects) Check(config *gateway.Config, known []status.Status) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, _ := o.build(config, known)
	o.Services.Close()
	o.Current.Store(next)
}

// Progress returns a number that grows while Apply works. It may be called concurrently: who waits for Apply
// sees whether it still works.
func (o *Objects) Progress() uint64 { return o.progress.Load() }
