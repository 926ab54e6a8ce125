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
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"
)

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

// Stop ends the checks and waits for them. The servers stay up or down.
func (c *Checks) Stop() {
	c.cancel()
	c.done.Wait()
	c.library.CloseIdleConnections()
	c.h2c.CloseIdleConnections()
}

func (c *Checks) follow(ctx context.Context, s Server) {
	up := cmp.Or(c.value.Interval, 30*time.Second)
	Repeat(ctx, s.Down, up, cmp.Or(c.value.UnhealthyInterval, up),
		func() error { return withoutURL(c.ask(ctx, s.URL)) },
		func(down bool, why string) { c.report(s, down, why) })
}

// Repeat asks a server until ctx ends, at once and then in intervals: after, or afterFailed while it is down. ask
// returns why the server is down, nil if it is up. changed is called when the result differs from the one in down,
// with the reason if the server is down.
func Repeat(ctx context.Context, down *atomic.Bool, after, afterFailed time.Duration, ask func() error,
	changed func(down bool, why string)) {
	for {
		err := goroutine.ErrPanic // if the check panics
		goroutine.Do("check a server", func() { err = ask() })
		if ctx.Err() != nil {
			return
		}
		why, wait := "", after
		if err != nil {
			why, wait = err.Error(), afterFailed
		}
		if down.Swap(err != nil) != (err != nil) {
			changed(err != nil, why)
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
	if of, ok := errors.AsType[*url.Error](err); ok {
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
