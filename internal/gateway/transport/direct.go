package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"time"

	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/model/gateway"
)

// newDirect returns a forwarder over HTTP/1.1 without TLS: the common case, and the fast
// one.
func newDirect(to *url.URL, t *gateway.ServersTransport) *forward.Pool {
	address := to.Host
	if to.Port() == "" {
		address = net.JoinHostPort(to.Hostname(), map[string]string{"http": "80", "https": "443"}[to.Scheme])
	}
	dialer := &net.Dialer{Timeout: cmp.Or(t.ForwardingTimeouts.DialTimeout, 30*time.Second)}
	return &forward.Pool{
		Dial:          func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) },
		MaxIdle:       t.MaxIdleConnsPerHost,
		IdleTimeout:   t.ForwardingTimeouts.IdleConnTimeout,
		HeaderTimeout: t.ForwardingTimeouts.ResponseHeaderTimeout,
	}
}

// newUpgrades returns a forwarder over HTTP/1.1 with TLS, for requests that ask for another
// protocol, such as WebSocket: as without TLS, each direction of the connection ends by itself, and
// a failure of one side is passed on. Net/http would turn it into an end.
func newUpgrades(to *url.URL, t *gateway.ServersTransport, config *tls.Config) *forward.Pool {
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = cmp.Or(config.ServerName, to.Hostname())
	p := newDirect(to, t)
	plain := p.Dial
	p.Dial = func(ctx context.Context) (net.Conn, error) {
		c, err := plain(ctx)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(c, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return secure, nil
	}
	return p
}
