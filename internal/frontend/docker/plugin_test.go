package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/daemon/daemontest"
	"fairlead/internal/engine"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
)

// host implements docker.Host.
type host struct{}

func (host) HasLink(name string) bool { return name == "eth0" || name == "eth0.7" }

func (host) Ranges() ([]netip.Prefix, error) {
	return []netip.Prefix{netip.MustParsePrefix("10.201.0.0/23"), netip.MustParsePrefix("192.0.2.0/24")}, nil
}

// CanBind returns false for addresses of TEST-NET-3 (RFC 5737).
func (host) CanBind(a netip.Addr) (bool, error) {
	return !netip.MustParsePrefix("203.0.113.0/24").Contains(a), nil
}

func (host) LocalPorts() (model.PortRange, error) {
	return model.PortRange{First: 32768, Last: 60999}, nil
}

// memory implements docker.Notes in memory.
type memory map[string]json.RawMessage

func (m memory) All() map[string]json.RawMessage { return maps.Clone(m) }

func (m memory) Put(notes map[string]any) error {
	var errs []error
	for key, v := range notes {
		text, err := json.Marshal(v)
		if errs = append(errs, err); v == nil {
			delete(m, key)
		} else {
			m[key] = text
		}
	}
	return errors.Join(errs...)
}

// plugin is a driver with a daemon without a host.
type plugin struct {
	testing.TB
	*daemontest.Daemon
	lasting, passing memory
	handler          http.Handler
	// containerOf is Config.ContainerOf; nil knows no names.
	containerOf func(endpoint string) string
}

func newPlugin(t testing.TB) *plugin {
	p := &plugin{TB: t, Daemon: &daemontest.Daemon{}, lasting: memory{}, passing: memory{}}
	p.Config = engine.SandboxConfig{MAC: "02:f1:ac:1e:00:02",
		Gateways: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")}}
	p.start()
	return p
}

// start starts the driver, as the next daemon does.
func (p *plugin) start() {
	containerOf := func(endpoint string) string {
		if p.containerOf == nil {
			return ""
		}
		return p.containerOf(endpoint)
	}
	p.handler = docker.New(docker.Config{Daemon: p.Daemon, Lasting: p.lasting, Passing: p.passing, Host: host{},
		Cluster:     cluster{p},
		Caller:      func(context.Context) int { return 0 },
		ContainerOf: containerOf, Log: slog.New(slog.DiscardHandler)}).Handler()
}

// post makes a call, and returns the response.
func (p *plugin) post(method, path string, body io.Reader) *httptest.ResponseRecorder {
	return p.postIn(context.Background(), method, path, body)
}

// postIn is post for a caller that waits until ctx ends.
func (p *plugin) postIn(ctx context.Context, method, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(method, "/"+path, body).WithContext(ctx))
	return w
}

// calls fails the test unless the call returns the wanted body, without surrounding
// white space.
func (p *plugin) calls(method, request, want string) {
	p.Helper()
	w := p.post(http.MethodPost, method, strings.NewReader(request))
	if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusOK || got != want {
		p.Errorf("%s %s:\n%d %s, want\n%s", method, request, w.Code, got, want)
	}
}

// refuses fails the test unless the call returns an error that contains why.
func (p *plugin) refuses(method, request, why string) {
	p.Helper()
	p.refusesIn(context.Background(), method, request, why)
}

// refusesIn is refuses for a caller that waits until ctx ends.
func (p *plugin) refusesIn(ctx context.Context, method, request, why string) {
	p.Helper()
	w := p.postIn(ctx, http.MethodPost, method, strings.NewReader(request))
	var failure struct{ Err, Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil || !strings.Contains(failure.Err, why) ||
		failure.Error != failure.Err {
		p.Errorf("%s %s: %s, want an error with %q", method, request, w.Body, why)
	}
}
