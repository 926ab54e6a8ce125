package gateway

import (
	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
	"sync/atomic"
)

// snapshot is all that requests need of one configuration. It does not change.
type snapshot struct {
	entries  map[string]*entryRoutes
	tls      *tlsNames
	statuses []status.Status
	config   *gateway.Config
	// streams are the TCP routers by entry point.
	streams map[string]*stream.Routes
	// datagrams are the UDP routers by entry point.
	datagrams map[string]*datagram.Route
}

// entryRoutes are the routers of one entry point. Connections with TLS see only
// routers with TLS, others only those without.
type entryRoutes struct {
	plain, tls *route.Table
}

func (e *entryRoutes) of(secure bool) *route.Table {
	if secure {
		return e.tls
	}
	return e.plain
}

// current is the snapshot in use. Any goroutine may read it.
type current struct{ atomic.Pointer[snapshot] }
