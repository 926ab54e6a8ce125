// Package stream serves the connections of TCP routers: middlewares, the choice of a server,
// and the connection to it. The package tunnel moves the bytes.
//
// Theory of operation. A handler has a client's connection for as long as it lasts. It
// connects to a server, and to another one if that fails, because nothing was sent yet.
//
// Servers, their condition and the number of a client's connections are kept apart from
// handlers, so that they survive changes of the configuration.
package stream

import (
	"context"
	"net"
	"net/netip"
)

// Client is the connection of a client.
type Client struct {
	net.Conn
	// Address is that of the client, for middlewares.
	Address netip.Addr
	// Greet, if not nil, prepares a new connection to a server before bytes are moved.
	Greet func(server net.Conn) error
	// heard is called when a router has taken the connection.
	heard func()
}

// Handler serves connections.
type Handler interface {
	// Serve returns when the connection has ended, and closes it. The context ends when
	// the gateway stops.
	Serve(ctx context.Context, c *Client)
}

// available reports whether a handler has a server that is up as far as checks show.
type available interface{ Available() bool }

func up(h Handler) bool {
	a, ok := h.(available)
	return !ok || a.Available()
}
