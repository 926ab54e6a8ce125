package stream

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/opening"
)

// Transport says how to connect to servers.
type Transport struct {
	// DialTimeout limits the time until a server can be used, KeepAlive is the interval of
	// TCP keep-alive probes.
	DialTimeout, KeepAlive time.Duration
	// TerminationDelay is how long a direction may be silent after the other has ended.
	TerminationDelay time.Duration
	// Header is the version of the PROXY header to send, 0 for none.
	Header int
	// TLS is that to servers with TLS.
	TLS *tls.Config
}

// Server is a server of a load balancer. It lives as long as a configuration names it.
type Server struct {
	// Address is HOST:PORT.
	Address string
	// TLS says that the server expects TLS.
	TLS bool
	// down is set by checks; failing is when the last failed connection is forgotten, in
	// nanoseconds since 1970.
	down    atomic.Bool
	failing atomic.Int64
	open    atomic.Int64
}

// ParseServer checks the address of a server.
func ParseServer(address string, secure bool) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return nil, fmt.Errorf("server %s: want HOST:PORT, for example 10.0.0.2:5432", address)
	}
	return &Server{Address: address, TLS: secure}, nil
}

// Down reports whether checks have found the server down.
func (s *Server) Down() bool { return s.down.Load() }

// Open returns the number of connections to the server.
func (s *Server) Open() int64 { return s.open.Load() }

// avoided is how long a server comes last after a failed connection.
const avoided = 10 * time.Second

// connect returns a connection to the server that is ready for the client's bytes.
func (s *Server) connect(ctx context.Context, t *Transport, client *Client) (net.Conn, error) {
	if t.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.DialTimeout)
		defer cancel()
	}
	c, err := s.dial(ctx, t, client.Conn)
	if err != nil || client.Greet == nil {
		return c, err
	}
	if at, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(at) // fails only with the connection
	}
	if err := client.Greet(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, c.SetDeadline(time.Time{})
}

// dial connects, and sends the PROXY header of the client if that is not nil.
func (s *Server) dial(ctx context.Context, t *Transport, client net.Conn) (net.Conn, error) {
	c, err := (&net.Dialer{KeepAlive: t.KeepAlive}).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	if t.Header != 0 && client != nil {
		header, err := opening.Header(t.Header, client)
		if err == nil {
			_, err = c.Write(header) // the buffer of a new connection has room
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("send the PROXY header: %w", err)
		}
	}
	if !s.TLS {
		return c, nil
	}
	config := t.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(s.Address) // ParseServer has checked it
	}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return secure, nil
}

// failed and succeeded record the result of a connection, and log changes.
func (s *Server) failed(log *slog.Logger, service string, err error) {
	if s.failing.Swap(time.Now().Add(avoided).UnixNano()) == 0 {
		log.Warn("cannot connect to a server", "service", service, "server", s.Address, "error", err)
	}
}

func (s *Server) succeeded(log *slog.Logger, service string) {
	if s.failing.Load() != 0 && s.failing.Swap(0) != 0 {
		log.Info("connected to a server again", "service", service, "server", s.Address)
	}
}

// avoid reports whether the server comes last.
func (s *Server) avoid() bool {
	until := s.failing.Load()
	return until != 0 && time.Now().UnixNano() < until
}
