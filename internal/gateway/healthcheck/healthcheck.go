// Package healthcheck asks the servers of HTTP services in intervals whether they are up, with a request or with the
// gRPC health checking protocol.
//
// It does not choose servers for requests, and does not count failed requests of clients: the load balancers do.
package healthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// Start begins to check the servers, each on its own, and at once. Transport returns a new transport to the servers;
// its errors are returned. Report is called concurrently when a server's result changes, with the reason if the server
// is down.
func Start(value gateway.HealthCheck, servers []Server, transport func() (*http.Transport, error),
	report func(s Server, down bool, why string)) (*Checks, error) {
	library, err := transport()
	if err != nil {
		return nil, err
	}
	h2c, err := transport()
	if err != nil {
		return nil, err
	}
	h2c.Protocols = new(http.Protocols)
	h2c.Protocols.SetUnencryptedHTTP2(true)
	ctx, cancel := context.WithCancel(context.Background())
	c := &Checks{value: value, report: report, cancel: cancel}
	c.library, c.h2c = c.client(library), c.client(h2c)
	for _, s := range servers {
		c.done.Go("check a server", func() { c.follow(ctx, s) })
	}
	return c, nil
}

func (c *Checks) client(transport http.RoundTripper) *http.Client {
	client := &http.Client{Transport: transport, Timeout: cmp.Or(c.value.Timeout, 5*time.Second)}
	if c.value.FollowRedirects != nil && !*c.value.FollowRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return client
}

// Stop ends the checks and waits for them. The servers stay up or down.
func (c *Checks) Stop() {
	c.cancel()
	c.done.Wait()
	c.library.CloseIdleConnections()
	c.h2c.CloseIdleConnections()
}

func (c *Checks) follow(ctx context.Context, s Server) {
	up := cmp.Or(c.value.Interval, 30*time.Second)
	down := cmp.Or(c.value.UnhealthyInterval, up)
	for {
		err := goroutine.ErrPanic // if the check panics
		goroutine.Do("check a server", func() { err = withoutURL(c.ask(ctx, s.URL)) })
		if ctx.Err() != nil {
			return
		}
		if was := s.Down.Swap(err != nil); was != (err != nil) {
			why := ""
			if err != nil {
				why = err.Error()
			}
			c.report(s, err != nil, why)
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
func (c *Checks) ask(ctx context.Context, server *url.URL) error {
	if c.value.Mode == "grpc" {
		return c.askGRPC(ctx, server)
	}
	client, to, err := c.target(server, c.value.Path)
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
