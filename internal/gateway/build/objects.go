// Package build makes the snapshot of a configuration from the last one and the changes.
//
// Objects owns what survives changes: routers and services as they were built (kept.go), and what TCP and UDP routers
// use. A builder (builder.go) works for one change (apply.go): it finds the objects that differ and those that need
// them, drops them, decides the TLS options of hosts (tls.go, hosts.go), and builds them again. A faulty object is left
// out alone, and its status has the reason. The package serves no request, and starts the checks and streams of a
// configuration only when its snapshot is in use.
package build

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/services"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/stream"
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

// Progress returns a number that grows while Apply works. It may be called concurrently: who waits for Apply
// sees whether it still works.
func (o *Objects) Progress() uint64 { return o.progress.Load() }
