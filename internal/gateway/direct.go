package gateway

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"time"

	"fairlead/internal/gateway/h1"
	"fairlead/internal/model/gateway"
)

// newDirect returns a forwarder over HTTP/1.1 without TLS: the common case, and the fast
// one.
func newDirect(to *url.URL, t *gateway.ServersTransport) *h1.Pool {
	address := to.Host
	if to.Port() == "" {
		address = net.JoinHostPort(to.Hostname(), "80")
	}
	dialer := &net.Dialer{Timeout: cmp.Or(t.ForwardingTimeouts.DialTimeout, 30*time.Second)}
	return &h1.Pool{
		Dial:          func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) },
		MaxIdle:       t.MaxIdleConnsPerHost,
		IdleTimeout:   t.ForwardingTimeouts.IdleConnTimeout,
		HeaderTimeout: t.ForwardingTimeouts.ResponseHeaderTimeout,
	}
}

// newForwarder returns the forwarder to the server.
func newForwarder(to *url.URL, t *gateway.ServersTransport) (forwarder, error) {
	if to.Scheme == "http" {
		return newDirect(to, t), nil
	}
	return newLibrary(to, t)
}
