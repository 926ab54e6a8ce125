// Package snapshot has all that requests and connections need of one configuration: tables of routers, certificates
// and TLS options, and the states of objects.
//
// A snapshot does not change. Package build makes one per configuration and stores it in Current, where entry points
// and explanations load it. The package does not build objects, and opens no connection.
package snapshot

import (
	"sync/atomic"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
)

// Snapshot is all that requests need of one configuration. It does not change.
type Snapshot struct {
	Entries  map[string]*Routes
	TLS      *Names
	Statuses []status.Status
	Config   *gateway.Config
	// streams are the TCP routers by entry point.
	Streams map[string]*stream.Routes
	// datagrams are the UDP routers by entry point.
	Datagrams map[string]*datagram.Route
}

// Routes are the routers of one entry point. Connections with TLS see only
// routers with TLS, others only those without.
type Routes struct {
	Plain, TLS *route.Table
}

// Of returns the routers that connections with or without TLS see.
func (e *Routes) Of(secure bool) *route.Table {
	if secure {
		return e.TLS
	}
	return e.Plain
}

// Current is the snapshot in use. Any goroutine may read it.
type Current struct{ atomic.Pointer[Snapshot] }
