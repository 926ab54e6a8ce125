package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"fairlead/internal/model/gateway"
)

// checks asks the servers of one service in intervals whether they are up.
type checks struct {
	value  gateway.HealthCheck
	client *http.Client
	log    func(server *server, down bool, why string)
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// startChecks begins to check the servers, each on its own, and at once.
func startChecks(value gateway.HealthCheck, servers []*server, transport http.RoundTripper,
	log func(*server, bool, string)) *checks {
	ctx, cancel := context.WithCancel(context.Background())
	c := &checks{value: value, log: log, cancel: cancel, client: &http.Client{Transport: transport,
		Timeout: cmp.Or(value.Timeout, 5*time.Second)}}
	if value.FollowRedirects != nil && !*value.FollowRedirects {
		c.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	for _, s := range servers {
		c.done.Go(func() { c.follow(ctx, s) })
	}
	return c
}

// stop ends the checks. The servers keep their last condition.
func (c *checks) stop() {
	c.cancel()
	c.done.Wait()
}

func (c *checks) follow(ctx context.Context, s *server) {
	up := cmp.Or(c.value.Interval, 30*time.Second)
	down := cmp.Or(c.value.UnhealthyInterval, up)
	for {
		err := c.ask(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if was := s.down.Swap(err != nil); was != (err != nil) {
			why := ""
			if err != nil {
				why = err.Error()
			}
			c.log(s, err != nil, why)
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

// ask sends one request and returns why the server is down, nil if it is up.
func (c *checks) ask(ctx context.Context, s *server) error {
	to, err := c.target(s)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(c.value.Method, http.MethodGet), to, nil)
	if err != nil {
		return err
	}
	for name, value := range c.value.Headers {
		r.Header.Set(name, value)
	}
	if c.value.Hostname != "" {
		r.Host = c.value.Hostname
	}
	response, err := c.client.Do(r)
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

// target returns the URL of the check.
func (c *checks) target(s *server) (string, error) {
	u := *s.url
	if u.Scheme == "h2c" {
		u.Scheme = "http"
	}
	u.Scheme = cmp.Or(c.value.Scheme, u.Scheme)
	if c.value.Port != 0 {
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(c.value.Port))
	}
	path, err := url.Parse(c.value.Path)
	if err != nil {
		return "", err
	}
	return u.ResolveReference(path).String(), nil
}
