package stream

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/tunnel"
)

// Balancer divides connections between servers, in turn.
type Balancer struct {
	Service   string
	Servers   []*Server
	Transport *Transport
	Log       *slog.Logger
	// Turns counts the connections. It outlives configurations.
	Turns *atomic.Uint64
}

// mostAttempts is how many servers a connection tries at most.
const mostAttempts = 3

// Available reports whether a server is up.
func (b *Balancer) Available() bool {
	for _, s := range b.Servers {
		if !s.Down() {
			return true
		}
	}
	return false
}

// Serve implements Handler.
func (b *Balancer) Serve(ctx context.Context, c *Client) {
	s, conn := b.connect(ctx, c)
	if s == nil {
		tunnel.Reset(c.Conn)
		return
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	tunnel.Join(c.Conn, conn, b.Transport.TerminationDelay)
}

// connect connects to the server whose turn it is, or to another one. Without a server it
// returns nil.
func (b *Balancer) connect(ctx context.Context, c *Client) (*Server, net.Conn) {
	for i, s := range b.order() {
		if i == mostAttempts {
			break
		}
		conn, err := s.connect(ctx, b.Transport, c)
		if err == nil {
			s.succeeded(b.Log, b.Service)
			return s, conn
		}
		if ctx.Err() != nil {
			break
		}
		s.failed(b.Log, b.Service, err)
	}
	return nil, nil
}

// order returns the servers that are up in the order in which they are tried: those that
// could not be reached lately come last.
func (b *Balancer) order() []*Server {
	first := make([]*Server, 0, len(b.Servers))
	var last []*Server
	turn := b.Turns.Add(1)
	for i := range b.Servers {
		s := b.Servers[(turn+uint64(i))%uint64(len(b.Servers))]
		switch {
		case s.Down():
		case s.avoid():
			last = append(last, s)
		default:
			first = append(first, s)
		}
	}
	return append(first, last...)
}

// Weighted divides connections between services.
type Weighted struct {
	services []Handler
	turns    *wrr.Turns
}

// NewWeighted returns the handler that gives each service its share. n counts the turns.
func NewWeighted(services []Handler, weights []int, n *atomic.Uint64) *Weighted {
	return &Weighted{services: services, turns: wrr.NewTurns(weights, n)}
}

// Available reports whether a service is up.
func (w *Weighted) Available() bool {
	for _, i := range w.turns.Ring() {
		if up(w.services[i]) {
			return true
		}
	}
	return false
}

// Serve implements Handler.
func (w *Weighted) Serve(ctx context.Context, c *Client) {
	for range w.turns.Ring() {
		h := w.services[w.turns.Next()]
		if up(h) {
			h.Serve(ctx, c)
			return
		}
	}
	tunnel.Reset(c.Conn)
}
