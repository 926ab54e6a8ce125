package healthcheck

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"
)

// Server is a server of one service.
type Server struct {
	URL *url.URL
	// Down is whether the last check failed. Its first value is the caller's.
	Down *atomic.Bool
}

// Checks asks the servers of one service in intervals whether they are up.
type Checks struct {
	value gateway.HealthCheck
	// library speaks HTTP/1.1, and HTTP/2 if TLS negotiates it; h2c speaks HTTP/2 without TLS.
	library, h2c *http.Client
	report       func(s Server, down bool, why string)
	cancel       context.CancelFunc
	done         goroutine.Group
}

func (c *Checks) client(transport http.RoundTripper) *http.Client {
	client := &http.Client{Transport: transport, Timeout: cmp.Or(c.value.Timeout, 5*time.Second)}
	if c.value.FollowRedirects != nil && !*c.value.FollowRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return client
}

// prepare sets the headers of a check.
func (c *Checks) prepare(r *http.Request) {
	for name, value := range c.value.Headers {
		r.Header.Set(name, value)
	}
	if c.value.Hostname != "" {
		r.Host = c.value.Hostname
	}
}

// target returns the URL of the check, and the client that speaks the server's protocol.
func (c *Checks) target(server *url.URL, path string) (*http.Client, string, error) {
	u := *server
	u.Scheme = cmp.Or(c.value.Scheme, u.Scheme)
	client := c.library
	if u.Scheme == "h2c" || u.Scheme == "http" && c.value.Mode == "grpc" {
		u.Scheme, client = "http", c.h2c
	}
	if c.value.Port != 0 {
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(c.value.Port))
	}
	at, err := url.Parse(path)
	if err != nil {
		return nil, "", err
	}
	return client, u.ResolveReference(at).String(), nil
}
