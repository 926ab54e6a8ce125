package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
)

// fake is a daemon without a host. It stores what it gets.
type fake struct {
	networks    []model.Network
	attachments []api.View
	// taken are host ports that another program uses.
	taken []model.PortRange
	// dead are endpoints whose containers have ended.
	dead map[string]bool
	// in is the configuration of every link in its sandbox.
	in engine.SandboxConfig
	// asked counts the calls of Expose.
	asked int
}

func (f *fake) CreateNetwork(n model.Network, _ bool) (api.Result, error) {
	if err := (model.State{Networks: append(slices.Clip(f.networks), n)}).Validate(); err != nil {
		return api.Result{}, err
	}
	f.networks = append(f.networks, n)
	return api.Result{}, nil
}

func (f *fake) RemoveNetwork(name string) (api.Result, error) {
	f.networks = slices.DeleteFunc(f.networks, func(n model.Network) bool { return n.Name == name })
	return api.Result{}, nil
}

func (f *fake) Networks() []model.Network { return slices.Clone(f.networks) }

func (f *fake) Attachments() []api.View { return slices.Clone(f.attachments) }

func (f *fake) find(name string) *api.View {
	for i := range f.attachments {
		if f.attachments[i].Name == name {
			return &f.attachments[i]
		}
	}
	return nil
}

func (f *fake) Reserve(a model.Attachment) (engine.SandboxConfig, error) {
	if f.find(a.Name) == nil {
		f.attachments = append(f.attachments, api.View{Attachment: a})
	}
	return f.in, nil
}

func (f *fake) Join(name, path string) (model.Endpoint, engine.SandboxConfig, error) {
	v := f.find(name)
	if v == nil {
		return model.Endpoint{}, f.in, fmt.Errorf("join %s: it was not reserved", name)
	}
	v.Sandbox = path
	return v.Endpoint, f.in, nil
}

func (f *fake) Expose(name string, publishes []model.Publish) error {
	f.asked++
	v := f.find(name)
	if v == nil {
		return nil
	}
	for _, p := range publishes {
		for _, o := range f.taken {
			if p.HostPorts.Overlaps(o) {
				return fmt.Errorf("publish: %w", &model.PortTakenError{Publish: p, Owner: "nginx (pid 7)"})
			}
		}
	}
	for _, o := range f.attachments {
		for _, have := range o.Publishes {
			i := slices.IndexFunc(publishes, have.Collides)
			if o.Name != name && i >= 0 {
				return fmt.Errorf("publish: %w", &model.PortTakenError{Publish: publishes[i], Owner: "endpoint " + o.Name})
			}
		}
	}
	v.Publishes = nil
	for _, p := range publishes {
		v.Publishes = append(v.Publishes, api.PublishedView{Publish: p})
	}
	return nil
}

func (f *fake) Leave(name string) error {
	if v := f.find(name); v != nil {
		v.Sandbox, v.Publishes = "", nil
	}
	return nil
}

func (f *fake) RemoveDead() {
	f.attachments = slices.DeleteFunc(f.attachments, func(v api.View) bool { return f.dead[v.Name] })
}

func (f *fake) Displace(name string) (bool, error) {
	dead := f.dead[name]
	if dead {
		f.attachments = slices.DeleteFunc(f.attachments, func(v api.View) bool { return v.Name == name })
	}
	return dead, nil
}

func (f *fake) Detach(_ context.Context, r api.DetachRequest) (api.Result, error) {
	f.attachments = slices.DeleteFunc(f.attachments, func(v api.View) bool { return v.Name == r.Name })
	return api.Result{}, nil
}

// HasLink, Ranges, CanBind and LocalPorts implement docker.Host.
func (f *fake) HasLink(name string) bool { return name == "eth0" || name == "eth0.7" }

func (f *fake) Ranges() ([]netip.Prefix, error) {
	return []netip.Prefix{netip.MustParsePrefix("10.201.0.0/23"), netip.MustParsePrefix("192.0.2.0/24")}, nil
}

// CanBind returns false for addresses of TEST-NET-3 (RFC 5737).
func (f *fake) CanBind(a netip.Addr) (bool, error) {
	return !netip.MustParsePrefix("203.0.113.0/24").Contains(a), nil
}

func (f *fake) LocalPorts() (model.PortRange, error) {
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

// plugin is a driver with a fake daemon.
type plugin struct {
	testing.TB
	*fake
	lasting, passing memory
	handler          http.Handler
	// containerOf is Config.ContainerOf; nil knows no names.
	containerOf func(ctx context.Context, endpoint string) string
}

func newPlugin(t testing.TB) *plugin {
	p := &plugin{TB: t, fake: &fake{}, lasting: memory{}, passing: memory{}}
	p.in = engine.SandboxConfig{MAC: "02:f1:ac:1e:00:02", Gateways: []netip.Addr{netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("fd00:30::1")}}
	p.start()
	return p
}

// start starts the driver, as the next daemon does.
func (p *plugin) start() {
	containerOf := func(ctx context.Context, endpoint string) string {
		if p.containerOf == nil {
			return ""
		}
		return p.containerOf(ctx, endpoint)
	}
	p.handler = docker.New(docker.Config{Daemon: p.fake, Lasting: p.lasting, Passing: p.passing, Host: p.fake, Caller: func(context.Context) int { return 0 },
		ContainerOf: containerOf, Log: slog.New(slog.DiscardHandler)}).Handler()
}

// post makes a call, and returns the response.
func (p *plugin) post(method, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, httptest.NewRequest(method, "/"+path, body))
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
	w := p.post(http.MethodPost, method, strings.NewReader(request))
	var failure struct{ Err, Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &failure); err != nil || !strings.Contains(failure.Err, why) || failure.Error != failure.Err {
		p.Errorf("%s %s: %s, want an error with %q", method, request, w.Body, why)
	}
}
