package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"fairlead/internal/gateway/opening"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/tunnel"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// Proxied returns a function that reads the PROXY headers of the peers that the entry point
// trusts. The bytes of others are data: they cannot claim another address.
func Proxied(e gateway.EntryPoint) (func(net.Conn) (net.Conn, error), error) {
	trusted, err := Prefixes(e.ProxyProtocol)
	if err != nil {
		return nil, fmt.Errorf("proxyProtocol: %w", err)
	}
	return func(c net.Conn) (net.Conn, error) {
		if e.ProxyProtocolInsecure || len(trusted) > 0 && Contain(trusted, addressOf(c)) {
			return opening.ReadHeader(c)
		}
		return c, nil
	}, nil
}

// Entry takes the connections of an entry point that belong to TCP routers.
type Entry struct {
	// routes returns the routers of the current configuration, nil if there are none.
	routes func() *Routes
	// count counts the open connections.
	count prometheus.Gauge
	// TLS terminates TLS with the configuration of the router; it has the keys of session
	// tickets.
	TLS    *tls.Config
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	clients map[net.Conn]struct{}
	// ended is closed when the last connection ends after Shutdown has begun.
	ended chan struct{}
}

// NewEntry returns an entry point without connections.
func NewEntry(routes func() *Routes, count prometheus.Gauge) *Entry {
	ctx, cancel := context.WithCancel(context.Background())
	return &Entry{routes: routes, count: count, ctx: ctx, cancel: cancel, clients: map[net.Conn]struct{}{},
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: configOfRouter}}
}

// handshake is what a handshake is for, in its context.
type handshake struct {
	config *tls.Config
	name   string
}

type handshakeKey struct{}

// configOfRouter returns the configuration of the router that takes the connection. It refuses
// a client that names another server than the one for which the router was chosen: the router
// may have other TLS options.
func configOfRouter(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	h, ok := hello.Context().Value(handshakeKey{}).(handshake)
	if !ok || rule.CanonicalHost(hello.ServerName) != h.name {
		return nil, errors.New("the server name differs from the one that was routed")
	}
	return h.config, nil
}

// Take serves the connection until it ends, if a TCP router takes it, and calls heard before. Otherwise all
// its bytes are left to HTTP. The connection must have a deadline for the client's first bytes and a
// handshake.
func (e *Entry) Take(c net.Conn, heard func()) bool {
	routes := e.routes()
	if routes == nil {
		return false
	}
	client := &Client{Conn: c, Address: addressOf(c), heard: heard}
	if routes.atOnce() {
		if r := routes.plain.find(client.Address, opening.Hello{}); r != nil {
			e.serve(r, client)
			return true
		}
	}
	kind, err := opening.PeekKind(c)
	switch {
	case err != nil:
		c.Close()
		return true
	case kind == opening.TLS:
		return e.takeSecure(routes, client)
	case kind == opening.PostgreSQL && !routes.tls.empty():
		e.takePostgreSQL(routes, client)
		return true
	}
	r := routes.plain.find(client.Address, opening.Hello{})
	if r != nil {
		e.serve(r, client)
	}
	return r != nil
}

// takeSecure serves a client that begins with a TLS handshake.
func (e *Entry) takeSecure(routes *Routes, client *Client) bool {
	if routes.tls.empty() {
		return false
	}
	hello, err := opening.PeekHello(client.Conn)
	switch {
	case errors.Is(err, opening.ErrNoHello):
		return false // crypto/tls answers with an alert
	case err != nil:
		client.Close()
		return true
	}
	r := routes.secure(client.Address, hello)
	if r != nil {
		e.serveSecure(r, client, hello)
	}
	return r != nil
}

// takePostgreSQL serves a client of PostgreSQL that asks for TLS before the handshake.
func (e *Entry) takePostgreSQL(routes *Routes, client *Client) {
	err := opening.AcceptPostgreSQL(client.Conn)
	var hello opening.Hello
	if err == nil {
		hello, err = opening.PeekHello(client.Conn)
	}
	r := routes.tls.find(client.Address, hello)
	if err != nil || r == nil {
		client.Close()
		return
	}
	if r.config == nil {
		client.Greet = askPostgreSQL
	}
	e.serveSecure(r, client, hello)
}

// addressOf returns the address of the client without a zone.
func addressOf(c net.Conn) netip.Addr {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return at.AddrPort().Addr().Unmap().WithZone("")
}

// askPostgreSQL asks a server of PostgreSQL for TLS, which the client believes it has.
func askPostgreSQL(server net.Conn) error {
	if _, err := server.Write(opening.SSLRequest()); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(server, answer[:]); err != nil {
		return err
	}
	if answer[0] != opening.Accepted {
		return errors.New("the PostgreSQL server does not accept TLS, which a router with passthrough needs")
	}
	return nil
}

// serveSecure terminates TLS unless the server does.
func (e *Entry) serveSecure(r *target, client *Client, hello opening.Hello) {
	if r.config != nil {
		secure := tls.Server(client.Conn, e.TLS)
		ctx := context.WithValue(e.ctx, handshakeKey{}, handshake{r.config, hello.ServerName})
		if err := secure.HandshakeContext(ctx); err != nil {
			secure.Close()
			return
		}
		client.Conn = secure
	}
	e.serve(r, client)
}

// serve serves a client whose router is known.
func (e *Entry) serve(r *target, client *Client) {
	client.heard()
	_ = client.SetDeadline(time.Time{}) // fails only with the connection
	if !e.add(client.Conn) {
		client.Close()
		return
	}
	e.count.Inc()
	defer e.count.Dec()
	defer e.remove(client.Conn)
	r.handler.Serve(e.ctx, client)
}

func (e *Entry) add(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended != nil {
		return false
	}
	e.clients[c] = struct{}{}
	return true
}

func (e *Entry) remove(c net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.clients, c)
	if e.ended != nil && len(e.clients) == 0 {
		close(e.ended)
	}
}

// Shutdown waits until the connections have ended. When the context ends, it resets them.
func (e *Entry) Shutdown(ctx context.Context) {
	defer e.cancel()
	e.mu.Lock()
	e.ended = make(chan struct{})
	if len(e.clients) == 0 {
		close(e.ended)
	}
	e.mu.Unlock()
	select {
	case <-e.ended:
		return
	case <-ctx.Done():
	}
	e.cancel()
	e.mu.Lock()
	for c := range e.clients {
		tunnel.Reset(c)
	}
	e.mu.Unlock()
	<-e.ended
}
