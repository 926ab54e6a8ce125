package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// conflict is a set of routers, and what happens to them and to clients without a certificate.
type conflict struct {
	options map[string]*model.TLSOptions
	// routers have RULE, or RULE and the name of options after a space.
	routers map[string]string
	// states have the routers that are not enabled: a part of the reason, after "warning: " or "disabled: ".
	states map[string]string
	// answers to https://HOST/PATH are the name of a router, a status, or refused.
	answers map[string]string
}

func conflicts(authority string) map[string]conflict {
	mutual := &model.TLSOptions{ClientAuth: model.ClientAuth{CAFiles: []string{authority},
		ClientAuthType: "RequireAndVerifyClientCert"}}
	options := map[string]*model.TLSOptions{"mutual@file": mutual, "new@file": {MinVersion: "VersionTLS13"},
		"old@file": {MinVersion: "VersionTLS10"}, "same@file": {MinVersion: "VersionTLS13"}}
	own := map[string]*model.TLSOptions{"default": mutual, "public@file": {}}
	return map[string]conflict{
		"plain default and strict": {options, map[string]string{"strict@file": "Host(`a.test`)&&Path(`/s`) mutual@file",
			"plain@file": "Host(`a.test`)"}, map[string]string{"plain@file": "warning: router strict@file"},
			map[string]string{"a.test/": refused, "a.test/s": refused}},
		"plain default and weak": {options, map[string]string{"weak@docker": "Host(`a.test`)&&Path(`/w`) old@file",
			"plain@docker": "Host(`a.test`)"}, map[string]string{"weak@docker": "warning: router plain@docker"},
			map[string]string{"a.test/": "plain@docker", "a.test/w": "weak@docker"}},
		"neither is stricter": {options, map[string]string{"mutual@docker": "Host(`*.a.test`) mutual@file",
			"new@docker": "Host(`*.a.test`)||Host(`b.test`) new@file", "b@docker": "Host(`b.test`)"},
			map[string]string{"new@docker": "disabled: host *.a.test has the TLS options mutual@file of router mutual@docker"},
			map[string]string{"x.a.test/": refused, "b.test/": "b@docker"}},
		"the same by another name": {options, map[string]string{"new@file": "Host(`a.test`) new@file",
			"same@file": "Host(`a.test`) same@file"}, map[string]string{"same@file": "warning: router new@file"},
			map[string]string{"a.test/": "new@file"}},
		"labels against a file": {options, map[string]string{"strict@docker": "Host(`a.test`)&&Path(`/s`) mutual@file",
			"site@file": "Host(`a.test`)"}, map[string]string{"strict@docker": "disabled: router site@file"},
			map[string]string{"a.test/": "site@file", "a.test/s": "site@file"}},
		"labels weaker than a file": {options, map[string]string{"weak@docker": "Host(`a.test`)&&Path(`/w`)",
			"site@file": "Host(`a.test`) mutual@file"}, map[string]string{"weak@docker": "warning: router site@file"},
			map[string]string{"a.test/": refused, "a.test/w": refused}},
		"weaker than the configured default": {own, map[string]string{"weak@docker": "Host(`a.test`)&&Path(`/w`) public@file",
			"site@docker": "Host(`a.test`)"}, map[string]string{"weak@docker": "warning: router site@docker"},
			map[string]string{"a.test/": refused, "a.test/w": refused}},
		"options that do not exist": {options, map[string]string{"gone@docker": "Host(`a.test`)&&Path(`/g`) mutal@file",
			"site@docker": "Host(`a.test`)"},
			map[string]string{"gone@docker": "disabled: does not exist: do you mean mutual@file?"},
			map[string]string{"a.test/": "site@docker", "a.test/g": "site@docker"}},
		"an exact name in a strict wildcard": {options, map[string]string{"wild@file": "Host(`*.a.test`) mutual@file",
			"exact@docker": "Host(`x.a.test`)&&Path(`/x`)"}, nil,
			map[string]string{"x.a.test/x": "exact@docker", "x.a.test/": "421", "y.a.test/": refused}},
		"a strict default without a host": {own, map[string]string{
			"public@docker": "Host(`a.test`)&&Path(`/`) public@file",
			"admin@file":    "PathPrefix(`/admin`)"}, nil,
			map[string]string{"a.test/": "public@docker", "a.test/admin": "421", "b.test/admin": refused}},
		"no host and nothing configured": {options, map[string]string{
			"old@docker": "Host(`a.test`)&&Path(`/`) old@file",
			"every@file": "PathPrefix(`/x`)"}, nil,
			map[string]string{"a.test/": "old@docker", "a.test/x": "every@file", "b.test/x": "every@file"}},
		"all hosts": {options, map[string]string{"all@file": "Host(`*`) mutual@file", "open@file": "Host(`a.test`)",
			"path@file": "PathPrefix(`/x`)"}, nil,
			map[string]string{"a.test/": "open@file", "b.test/x": refused, "a.test/x": "path@file"}},
	}
}

// TestConflictsOfOptions checks what happens to routers whose TLS options disagree: none is served under weaker
// options than its own, and labels of containers change nothing for the routers of files.
func TestConflictsOfOptions(t *testing.T) {
	w := newWorld(t, model.Static{})
	for name, c := range conflicts(certificate(t, "authority.test").CertFile) {
		t.Run(name, func(t *testing.T) {
			states := w.applyConflict(c, func(name string) *model.Service { return server(t, named(name)) })
			for _, s := range states {
				state, want, _ := strings.Cut(c.states[s.Name], ": ")
				if state == "" {
					state = string(status.Enabled)
				}
				if s.Kind == "router" &&
					(string(s.State) != state || !strings.Contains(strings.Join(s.Reasons, "\n"), want)) {
					t.Errorf("%s is %s: %q, want %s: %q", s.Name, s.State, s.Reasons, state, want)
				}
			}
			for at, want := range c.answers {
				host, path, _ := strings.Cut(at, "/")
				if got := w.askAs(t, host, "/"+path); got != want {
					t.Errorf("https://%s answers %s, want %s", at, got, want)
				}
			}
		})
	}
}

// TestConflictsEnd checks that a router is in use again when the other one, or what is wrong with its options, is gone.
func TestConflictsEnd(t *testing.T) {
	w := newWorld(t, model.Static{})
	c := conflicts(certificate(t, "authority.test").CertFile)["neither is stricter"]
	state := func(routers ...string) string {
		now := conflict{options: c.options, routers: map[string]string{}}
		for _, name := range routers {
			now.routers[name] = c.routers[name]
		}
		for _, s := range w.applyConflict(now, func(string) *model.Service { return serviceOf() }) {
			if s.Name == "new@docker" && s.Kind == "router" {
				return string(s.State)
			}
		}
		return "unknown"
	}
	options := c.options["new@file"]
	for i, want := range []string{"enabled", "disabled", "enabled", "disabled", "enabled"} {
		routers := []string{"new@docker"}
		if c.options["new@file"] = options; i == 1 {
			routers = append(routers, "mutual@docker")
		}
		if i == 3 {
			delete(c.options, "new@file")
		}
		if got := state(routers...); got != want {
			t.Errorf("step %d: the router is %s, want %s", i, got, want)
		}
	}
}

// TestOptionsOfEntryPoint checks that the options of an entry point apply to its routers that name none, and to hosts
// that no router names.
func TestOptionsOfEntryPoint(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		TLS: &model.RouterTLS{Options: "mutual@file"}}}})
	c := conflict{options: conflicts(certificate(t, "authority.test").CertFile)["all hosts"].options,
		routers: map[string]string{"named@docker": "Host(`a.test`)",
			"open@docker":  "Host(`open.test`)&&Path(`/`) default",
			"every@docker": "PathPrefix(`/x`)"}}
	for _, s := range w.applyConflict(c, func(name string) *model.Service { return server(t, named(name)) }) {
		if s.State != status.Enabled {
			t.Errorf("%s %s is %s: %q", s.Kind, s.Name, s.State, s.Reasons)
		}
	}
	for at, want := range map[string]string{"a.test": refused, "b.test": refused, "open.test": "open@docker"} {
		if got := w.askAs(t, at, "/"); got != want {
			t.Errorf("https://%s answers %s, want %s", at, got, want)
		}
	}
	if got := w.askAs(t, "open.test", "/x"); got != "421" {
		t.Errorf("a router without a host answers %s on a connection with weaker options than the entry point's, want 421", got)
	}
}

// TestConflictsWithTCP checks that a TCP router is disabled if HTTPS routers take the connections for its name under
// weaker options.
func TestConflictsWithTCP(t *testing.T) {
	w := newWorld(t, model.Static{})
	for _, s := range []struct{ https, options, tcp, tcpOptions, want string }{
		{"Host(`a.test`)", "", "HostSNI(`a.test`)", "new@file", "disabled"},
		{"Host(`*.test`)", "", "HostSNI(`a.test`)", "new@file", "disabled"},
		{"Host(`*.test`)", "", "HostSNI(`*.test`)", "new@file", "disabled"},
		{"Host(`a.test`)", "new@file", "HostSNI(`a.test`)", "", "enabled"},
		{"Host(`*.test`)", "new@file", "HostSNI(`a.test`)", "new@file", "enabled"},
		{"Host(`b.test`)", "", "HostSNI(`a.test`)", "new@file", "enabled"},
		{"PathPrefix(`/`)", "", "HostSNI(`a.test`)", "new@file", "enabled"},
	} {
		states := w.applyTCP(model.TCP{Routers: map[string]*model.TCPRouter{"tcp@file": {Rule: s.tcp, Service: "s@file",
			TLS: &model.TCPRouterTLS{RouterTLS: model.RouterTLS{Options: s.tcpOptions}}}},
			Services: map[string]*model.TCPService{"s@file": tcpServiceOf("127.0.0.1:9")}},
			model.HTTP{Routers: map[string]*model.Router{"web@file": {Rule: s.https, Service: "web@file",
				TLS: &model.RouterTLS{Options: s.options}}},
				Services: map[string]*model.Service{"web@file": serviceOf()}})
		state, reasons := states["tcp@file"].State, strings.Join(states["tcp@file"].Reasons, "\n")
		if s.want == "disabled" && !strings.Contains(reasons, "HTTPS routers take the connections") ||
			string(state) != s.want {
			t.Errorf("%+v: the TCP router is %s: %q", s, state, reasons)
		}
	}
}

// applyConflict applies the routers, each with a service of its name.
func (w *world) applyConflict(c conflict, service func(name string) *model.Service) []status.Status {
	config := &model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{},
		Services: map[string]*model.Service{}}}
	config.TLS.Options = map[string]*model.TLSOptions{}
	for name, o := range c.options {
		config.TLS.Options[name] = o
	}
	for name, text := range c.routers {
		rule, options, _ := strings.Cut(text, " ")
		config.HTTP.Routers[name] = &model.Router{Rule: rule, Service: name, TLS: &model.RouterTLS{Options: options}}
		config.HTTP.Services[name] = service(name)
	}
	return w.gateway.Apply(config, nil)
}

// askAs returns what a client without a certificate gets that names the host in the handshake and in the request.
func (w *world) askAs(t *testing.T, host, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	client := &http.Transport{TLSClientConfig: &tls.Config{ServerName: host, InsecureSkipVerify: true}}
	defer client.CloseIdleConnections()
	answer, err := client.RoundTrip(r)
	if err != nil {
		return refused
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.StatusCode)
	}
	body, _ := io.ReadAll(answer.Body) // a text that is cut differs
	return string(body)
}
