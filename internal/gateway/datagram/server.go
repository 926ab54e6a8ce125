package datagram

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/goroutine"
)

// Server is a server of a load balancer. It lives as long as a configuration names it, or a
// session uses it.
type Server struct {
	// address is HOST:PORT; at is its address, nil until the host's name is resolved.
	address string
	at      atomic.Pointer[netip.AddrPort]
	// removed is set when no configuration names the server.
	removed atomic.Bool
	// refusing is until when the server comes last, because it refused a datagram, in
	// nanoseconds since 1970.
	refusing atomic.Int64
	stop     context.CancelFunc
}

const (
	// avoided is how long a server comes last after it refused a datagram.
	avoided = 10 * time.Second
	// resolved is how long the address of a name is used, unresolved the time between
	// failures to resolve it.
	resolved, unresolved = 30 * time.Second, time.Second
)

// newServer returns the server of an address that stream.ParseServer has accepted.
func newServer(address string) *Server {
	s := &Server{address: address}
	if at, err := netip.ParseAddrPort(address); err == nil {
		s.at.Store(&at)
		return s
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	goroutine.Go("resolve the name of a server", func() { s.follow(ctx) })
	return s
}

// follow resolves the name of the server from time to time.
func (s *Server) follow(ctx context.Context) {
	for {
		wait := unresolved
		goroutine.Do("resolve the name of a server", func() {
			if s.resolve(ctx) {
				wait = resolved
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// resolve stores the address of the server's name. It returns false if the name has none.
func (s *Server) resolve(ctx context.Context) bool {
	host, port, _ := net.SplitHostPort(s.address)
	number, err := net.LookupPort("udp", port)
	if err != nil {
		return false
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(all) == 0 {
		return false
	}
	at := netip.AddrPortFrom(all[0].Unmap(), uint16(number))
	s.at.Store(&at)
	return true
}

// remove ends what the server needs for new sessions.
func (s *Server) remove() {
	s.removed.Store(true)
	if s.stop != nil {
		s.stop()
	}
}

func (s *Server) usable() bool {
	until := s.refusing.Load()
	return until == 0 || time.Now().UnixNano() >= until
}

// service chooses the server of a new session, nil if there is none.
type service interface{ next() *Server }

// balancer takes its servers in turn.
type balancer struct {
	servers []*Server
	turn    *atomic.Uint64
}

func (b *balancer) next() *Server {
	var last *Server
	for range b.servers {
		s := b.servers[b.turn.Add(1)%uint64(len(b.servers))]
		if s.at.Load() == nil {
			continue
		}
		if last = s; s.usable() {
			break
		}
	}
	return last
}

// weighted gives each service its share.
type weighted struct {
	services []service
	turns    *wrr.Turns
}

func newWeighted(services []service, weights []int, n *atomic.Uint64) *weighted {
	return &weighted{services: services, turns: wrr.NewTurns(weights, n)}
}

func (w *weighted) next() *Server {
	for range w.turns.Ring() {
		if s := w.services[w.turns.Next()].next(); s != nil {
			return s
		}
	}
	return nil
}
