// Package dhcptest has a DHCP server without a network for tests of programs that keep leases, and
// the tests that its clients and those of package dhcp pass.
package dhcptest

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/dhcp"
	"fairlead/internal/model"
)

// Server leases addresses without a network. Its methods can be called concurrently.
type Server struct {
	// Silent makes the server answer no client until Answer.
	Silent bool
	// Lasts is how long the first lease of a client lasts; 0 means for ever.
	Lasts time.Duration
	// Releasing, if it is not nil, delays each release until it is closed.
	Releasing chan struct{}
	// Asked receives the configuration of each client that starts, and Ending the host name of each one that begins to
	// release its lease.
	Asked  chan dhcp.Config
	Ending chan string

	// answers is closed by Answer.
	answers chan struct{}

	mu       sync.Mutex
	clients  map[string]chan dhcp.Lease
	released []string
}

// NewServer returns a server that leases 192.0.2.7 to each client.
func NewServer() *Server {
	return &Server{Asked: make(chan dhcp.Config, 9), Ending: make(chan string, 9), answers: make(chan struct{}),
		clients: map[string]chan dhcp.Lease{}}
}

// Run is dhcp.Run for a client of the server.
func (s *Server) Run(ctx context.Context, c dhcp.Config, notify func(dhcp.Lease)) error {
	if s.Silent && !s.answered() {
		if c.Failed == nil {
			return dhcp.ErrNoServer
		}
		c.Failed(dhcp.ErrNoServer)
		select { // it tries until a server answers
		case <-s.answers:
		case <-ctx.Done():
			return nil
		}
	}
	leases := make(chan dhcp.Lease)
	s.mu.Lock()
	s.clients[c.Hostname] = leases
	s.mu.Unlock()
	s.Asked <- c
	l := Lease("192.0.2.7/24")
	if s.Lasts > 0 {
		l.Expires = alarm.Now().Add(s.Lasts)
	}
	notify(l)
	for {
		select {
		case l := <-leases:
			notify(l)
		case <-ctx.Done():
			s.Ending <- c.Hostname
			if s.Releasing != nil {
				<-s.Releasing
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.released = append(s.released, c.Hostname)
			return nil
		}
	}
}

// Answer makes a silent server answer all clients, also those that have asked before.
func (s *Server) Answer() { close(s.answers) }

func (s *Server) answered() bool {
	select {
	case <-s.answers:
		return true
	default:
		return false
	}
}

// Lease returns a lease with a gateway and a route.
func Lease(address string) dhcp.Lease {
	return dhcp.Lease{
		Prefixes: []netip.Prefix{netip.MustParsePrefix(address)},
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Routes:   []model.Route{{To: netip.MustParsePrefix("198.18.0.0/15"), Via: netip.MustParseAddr("192.0.2.254")}},
	}
}

// Offer gives another lease to the client with a host name. The zero lease means that the client
// has lost its lease.
func (s *Server) Offer(client string, l dhcp.Lease) {
	s.mu.Lock()
	leases := s.clients[client]
	s.mu.Unlock()
	leases <- l
}

// Released returns the host names of the clients that have released their leases.
func (s *Server) Released() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.released)
}
