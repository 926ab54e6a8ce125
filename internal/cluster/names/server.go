package names

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fairlead/internal/cluster/kv"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// Limits of a network's server.
const (
	idleTimeout  = 5 * time.Second // until a question is complete
	maxQuestions = 16              // per connection
)

// Network is one in which the host answers.
type Network struct {
	Name string
	// Addresses are the host's own in the network. They need not exist yet.
	Addresses []netip.Addr
	// Subnets are those of the network: only their addresses get answers.
	Subnets []netip.Prefix
}

func (n Network) equal(o Network) bool {
	return n.Name == o.Name && slices.Equal(n.Addresses, o.Addresses) && slices.Equal(n.Subnets, o.Subnets)
}

// has reports whether an address is in the network.
func (n Network) has(client netip.Addr) bool {
	return slices.ContainsFunc(n.Subnets, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Server answers in all networks of a cluster. Its methods may be called concurrently.
type Server struct {
	log *slog.Logger
	// do calls a function on a thread in the host's network namespace.
	do func(func() error) error
	// idle is idleTimeout, or that of a test.
	idle time.Duration

	// mu protects listening. Who has it may wait for questions that are being answered.
	mu        sync.Mutex
	listening map[string]*listener
	// reading protects directory. Questions that are being answered wait for it.
	reading   sync.RWMutex
	directory *Directory
	turn      atomic.Uint32
}

// NewServer returns a server that listens nowhere yet. do calls a function on a thread in the
// network namespace in which to listen.
func NewServer(log *slog.Logger, do func(func() error) error) *Server {
	return &Server{log: log, do: do, idle: idleTimeout, directory: NewDirectory(), listening: map[string]*listener{}}
}

// Update takes the changes of an update.
func (s *Server) Update(u kv.Update) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for _, key := range s.directory.Update(u) {
		s.log.Warn("a record of an endpoint cannot be read: its names have no answer", "key", key)
	}
}

// Set listens in these networks, and no longer in others. It returns the networks in which the
// server cannot listen, with the reasons; call Set again to retry.
func (s *Server) Set(networks []Network) map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.listening {
		if !slices.ContainsFunc(networks, l.network.equal) {
			l.close()
			delete(s.listening, name)
		}
	}
	failed := map[string]error{}
	for _, n := range networks {
		if s.listening[n.Name] != nil {
			continue
		}
		l, err := s.listen(n)
		if err != nil {
			failed[n.Name] = err
			continue
		}
		s.listening[n.Name] = l
	}
	return failed
}

// Close closes all sockets, waits until no question is being answered, and forgets all names.
func (s *Server) Close() {
	s.Set(nil)
	s.reading.Lock()
	defer s.reading.Unlock()
	s.directory = NewDirectory()
}

// listener has the sockets of a network.
type listener struct {
	network Network
	rates   *rates
	servers []*dns.Server
	done    sync.WaitGroup
}

func (l *listener) close() {
	for _, s := range l.servers {
		_ = s.Shutdown() // fails only if it has not started or has ended
	}
	l.done.Wait()
}

// listen opens the sockets of a network and serves them.
func (s *Server) listen(n Network) (*listener, error) {
	l := &listener{network: n, rates: newRates()}
	for _, a := range n.Addresses {
		udp, tcp, err := s.open(netip.AddrPortFrom(a, 53))
		if err != nil {
			l.close()
			return nil, fmt.Errorf("listen for DNS questions of network %s: %w: stop the program that listens there, "+
				"or let it listen at other addresses only", n.Name, err)
		}
		s.serve(l, &dns.Server{PacketConn: udp})
		s.serve(l, &dns.Server{Listener: newFairListener(tcp, n.has), MaxTCPQueries: maxQuestions,
			ReadTimeout: s.idle, WriteTimeout: s.idle, IdleTimeout: func() time.Duration { return s.idle }})
	}
	return l, nil
}

// open opens the sockets for an address, which need not exist yet.
func (s *Server) open(at netip.AddrPort) (udp net.PacketConn, tcp net.Listener, err error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		option := func(fd uintptr) {
			if at.Addr().Is4() {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			}
		}
		return errors.Join(c.Control(option), err)
	}}
	err = s.do(func() (err error) {
		if udp, err = config.ListenPacket(context.Background(), "udp", at.String()); err != nil {
			return err
		}
		if tcp, err = config.Listen(context.Background(), "tcp", at.String()); err != nil {
			return errors.Join(err, udp.Close())
		}
		return nil
	})
	return udp, tcp, err
}

// serve starts one server of a network, and returns when it can be shut down.
func (s *Server) serve(l *listener, server *dns.Server) {
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { s.reply(l, w, q) })
	server.MsgAcceptFunc = accept
	l.servers = append(l.servers, server)
	l.done.Go(func() {
		if err := server.ActivateAndServe(); err != nil {
			s.log.Error("DNS questions are no longer answered", "network", l.network.Name, "error", err)
		}
	})
	<-started
}

// accept ignores messages that are no question, whoever has sent them.
func accept(h dns.Header) dns.MsgAcceptAction {
	if action := dns.DefaultMsgAcceptFunc(h); action == dns.MsgAccept {
		return action
	}
	return dns.MsgIgnore
}

// reply answers a question of a sandbox, and drops all others.
func (s *Server) reply(l *listener, w dns.ResponseWriter, q *dns.Msg) {
	client := clientOf(w.RemoteAddr())
	if !l.network.has(client) || !l.rates.allow(client, time.Now()) {
		return
	}
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	s.reading.RLock()
	r := answer(s.directory, l.network.Name, q, udp, s.turn.Add(1))
	s.reading.RUnlock()
	_ = w.WriteMsg(r) // the client asks again
}
