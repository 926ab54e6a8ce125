package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"
)

// errFault is the result of what has failed by a mistake in the gateway.
var errFault = errors.New("a mistake in the gateway")

// checks asks the servers of one service in intervals whether they are up.
type checks struct {
	value gateway.HealthCheck
	// library speaks HTTP/1.1, and HTTP/2 if TLS negotiates it; h2c speaks HTTP/2 without TLS.
	library, h2c *http.Client
	log          func(m member, down bool, why string)
	cancel       context.CancelFunc
	done         goroutine.Group
}

// startChecks begins to check the servers, each on its own, and at once.
func startChecks(of checkOf, log func(member, bool, string)) (*checks, error) {
	library, err := newTransport(of.via)
	if err != nil {
		return nil, err
	}
	h2c, err := newTransport(of.via)
	if err != nil {
		return nil, err
	}
	h2c.Protocols = new(http.Protocols)
	h2c.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(context.Background())
	c := &checks{value: of.value, log: log, cancel: cancel}
	c.library, c.h2c = c.client(library), c.client(h2c)
	for _, m := range of.servers {
		c.done.Go("check a server", func() { c.follow(ctx, m) })
	}
	return c, nil
}

func (c *checks) client(transport http.RoundTripper) *http.Client {
	client := &http.Client{Transport: transport, Timeout: cmp.Or(c.value.Timeout, 5*time.Second)}
	if c.value.FollowRedirects != nil && !*c.value.FollowRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return client
}

// stop ends the checks. The conditions stay as they are.
func (c *checks) stop() {
	c.cancel()
	c.done.Wait()
	c.library.CloseIdleConnections()
	c.h2c.CloseIdleConnections()
}

func (c *checks) follow(ctx context.Context, m member) {
	up := cmp.Or(c.value.Interval, 30*time.Second)
	down := cmp.Or(c.value.UnhealthyInterval, up)
	for {
		err := errFault // if the check panics
		goroutine.Do("check a server", func() { err = withoutURL(c.ask(ctx, m.server)) })
		if ctx.Err() != nil {
			return
		}
		if was := m.down.Swap(err != nil); was != (err != nil) {
			why := ""
			if err != nil {
				why = err.Error()
			}
			c.log(m, err != nil, why)
		}
		wait := up
		if err != nil {
			wait = down
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// withoutURL returns the cause of an error that names a URL: the URL of a check can have credentials.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// ask sends one request and returns why the server is down, nil if it is up.
func (c *checks) ask(ctx context.Context, s *server) error {
	if c.value.Mode == "grpc" {
		return c.askGRPC(ctx, s)
	}
	client, to, err := c.target(s, c.value.Path)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(c.value.Method, http.MethodGet), to, nil)
	if err != nil {
		return err
	}
	c.prepare(r)
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	response.Body.Close()
	switch {
	case c.value.Status != 0 && response.StatusCode != c.value.Status:
		return fmt.Errorf("status %d, want %d", response.StatusCode, c.value.Status)
	case c.value.Status == 0 && (response.StatusCode < 200 || response.StatusCode >= 400):
		return fmt.Errorf("status %d, want 200 to 399", response.StatusCode)
	}
	return nil
}

// prepare sets the headers of a check.
func (c *checks) prepare(r *http.Request) {
	for name, value := range c.value.Headers {
		r.Header.Set(name, value)
	}
	if c.value.Hostname != "" {
		r.Host = c.value.Hostname
	}
}

// target returns the URL of the check, and the client that speaks the server's protocol.
func (c *checks) target(s *server, path string) (*http.Client, string, error) {
	u := *s.url
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
