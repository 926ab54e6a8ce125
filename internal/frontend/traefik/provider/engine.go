// Package provider reads configurations for the gateway where Traefik's providers
// find them, and follows their changes: the labels of a container engine's
// containers, and files.
package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/model/gateway"
)

// engine is the API of a container engine.
type engine struct {
	client *http.Client
	base   string
	// limit is how long the engine may take for a whole answer.
	limit time.Duration
	// since is the time from which the next subscription gets events, in nanoseconds; 0 means from
	// now on.
	since int64
}

// newEngine returns the engine at the endpoint: unix://PATH, tcp://HOST:PORT, http://
// or https://.
func newEngine(endpoint string, settings *gateway.ClientTLS) (*engine, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{ResponseHeaderTimeout: requestTimeout}
	e := &engine{client: &http.Client{Transport: transport}, base: "http://engine", limit: requestTimeout}
	switch u.Scheme {
	case "unix":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
		return e, nil
	case "tcp", "http", "https":
		e.base = "http://" + u.Host
	default:
		return nil, fmt.Errorf("engine %s: want unix://PATH, tcp://HOST:PORT, http:// or https://", endpoint)
	}
	if settings != nil || u.Scheme == "https" {
		e.base = "https://" + u.Host
		transport.TLSClientConfig, err = engineTLS(settings)
	}
	return e, err
}

// requestTimeout is how long the engine may take for an answer, or to begin one that does not end.
const requestTimeout = 10 * time.Second

func engineTLS(s *gateway.ClientTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s == nil {
		return c, nil
	}
	c.InsecureSkipVerify = s.InsecureSkipVerify
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no PEM certificate", s.CA)
		}
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// get decodes the answer to a request.
func (e *engine) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.limit, errSlow)
	defer cancel()
	body, err := e.open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	err = json.NewDecoder(io.LimitReader(body, mostAnswer)).Decode(into)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// errSlow is the error if the engine has not answered in time.
var errSlow = errors.New("the engine has not answered in time")

// mostAnswer is the size of the largest answer, in bytes.
const mostAnswer = 64 << 20

// open returns the body of the answer.
func (e *engine) open(ctx context.Context, path string) (io.ReadCloser, error) {
	answer, err := e.request(ctx, path)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// request returns the answer, whose body must be closed. The path has no version, so the engine takes
// the latest one that it knows.
func (e *engine) request(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := e.client.Do(r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if answer.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w: %s", os.ErrNotExist, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the engine answers %s: %s", answer.Status, strings.TrimSpace(string(text)))
}

// inspected is the part of a container that the gateway needs, as the engine's API
// names it.
type inspected struct {
	ID      string `json:"Id"`
	Name    string
	Created time.Time
	State   struct {
		Running   bool
		StartedAt time.Time
		Health    *struct{ Status string }
	}
	Config struct {
		Labels       map[string]string
		ExposedPorts map[string]struct{}
		StopSignal   string
		StopTimeout  int // seconds
	}
	HostConfig struct {
		NetworkMode string
	}
	NetworkSettings struct {
		Networks map[string]struct{ IPAddress, GlobalIPv6Address, MacAddress string }
		Ports    map[string][]struct {
			HostIP   string `json:"HostIp"`
			HostPort string
		}
	}
}

// runningStates are the states of containers that have processes.
var runningStates = []string{"running", "paused", "restarting"}

// listed is a container in the engine's list.
type listed struct {
	ID     string `json:"Id"`
	Names  []string
	State  string
	Labels map[string]string
}

// name returns the name of the container, or the beginning of its ID.
func (l *listed) name() string {
	if len(l.Names) == 0 {
		return l.ID[:min(len(l.ID), shortID)]
	}
	return strings.TrimPrefix(l.Names[0], "/")
}

// list returns the containers that run, and those whose labels allow that they do not.
func (e *engine) list(ctx context.Context) (all []listed, err error) {
	if err := e.get(ctx, "/containers/json?all=true", &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c listed) bool {
		return !slices.Contains(runningStates, c.State) && !traefik.AllowsNonRunning(c.Labels)
	}), nil
}

// inspect returns a container; os.ErrNotExist if there is none.
func (e *engine) inspect(ctx context.Context, id string) (inspected, error) {
	var c inspected
	return c, e.get(ctx, "/containers/"+url.PathEscape(id)+"/json", &c)
}
