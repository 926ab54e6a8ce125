package acme_test

import (
	"log/slog"
	"strings"
	"testing"

	"fairlead/internal/gateway/acme"
	model "fairlead/internal/model/gateway"
)

// TestMissing checks that names of routers with TLS are listed that no certificate has, and for
// which none is obtained.
func TestMissing(t *testing.T) {
	secure := func(rule, resolver string) *model.Router {
		return &model.Router{Rule: rule, TLS: &model.RouterTLS{CertResolver: resolver}}
	}
	stream := func(rule string, passthrough bool) *model.TCPRouter {
		return &model.TCPRouter{Rule: rule, TLS: &model.TCPRouterTLS{Passthrough: passthrough}}
	}
	fallback := certificateFor(t, "*.main.test")
	config := model.Config{
		TLS: model.TLS{Certificates: []model.Certificate{certificateFor(t, "a.test"), certificateFor(t, "*.wild.test")},
			Stores: map[string]*model.Store{"default": {DefaultCertificate: &fallback}}},
		HTTP: model.HTTP{Routers: map[string]*model.Router{
			"had@file": secure("Host(`a.test`) || Host(`x.wild.test`) || Host(`y.main.test`) || Host(`acme.test`)",
				""),
			"acme@file": secure("Host(`acme.test`)", "le"),
			"not@file":  secure("Host(`lost.test`) || Host(`*.lost.test`)", ""),
			"bare@file": {Rule: "Host(`bare.test`)"}}},
		TCP: model.TCP{Routers: map[string]*model.TCPRouter{"db@file": stream("HostSNI(`db.test`)", false),
			"pass@file": stream("HostSNI(`pass.test`)", true)}}}
	m := acme.New(acme.Options{Static: model.Static{Default: []string{"web"},
		EntryPoints: []model.EntryPoint{{Name: "web"}}}, Log: slog.New(slog.DiscardHandler)})
	m.Complete(&config)
	missing := map[string]string{}
	for _, c := range config.ACME.Certificates {
		if c.State == model.CertificateMissing && c.Next.IsZero() {
			missing[strings.Join(c.Names, ",")] = c.Reason
		}
	}
	for name, router := range map[string]string{"lost.test": "not@file", "*.lost.test": "not@file",
		"db.test": "db@file"} {
		if !strings.HasPrefix(missing[name], "router "+router+" has no tls.certResolver") {
			t.Errorf("%s: %q", name, missing[name])
		}
	}
	if len(missing) != 3 || len(config.ACME.Certificates) != 4 {
		t.Errorf("states: %+v", config.ACME.Certificates)
	}
}

// TestPanicConcernsOneRouter completes a configuration with routers without a value, which no front end makes.
func TestPanicConcernsOneRouter(t *testing.T) {
	config := model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{"bad@file": nil,
		"good@file": {Rule: "Host(`a.test`)", TLS: &model.RouterTLS{CertResolver: "le"}}}},
		TCP: model.TCP{Routers: map[string]*model.TCPRouter{"bad@file": nil}}}
	static := model.Static{Default: []string{"web"}, EntryPoints: []model.EntryPoint{{Name: "web"}}}
	if states := acme.Check(&config, static); len(states) != 1 || states[0].Names[0] != "a.test" {
		t.Errorf("certificates %+v", states)
	}
}

// TestNamelessDefault completes configurations whose default certificate is for no name, which a front end should have
// refused.
func TestNamelessDefault(t *testing.T) {
	for _, main := range []string{"", ".", " . "} {
		config := model.Config{TLS: model.TLS{Stores: map[string]*model.Store{"default": {
			DefaultGeneratedCert: &model.GeneratedCert{Resolver: "le", Domain: &model.Domain{Main: main}}}}}}
		static := model.Static{Resolvers: map[string]*model.Resolver{"le": {TLSChallenge: true,
			Storage: t.TempDir() + "/acme.json"}}}
		if states := acme.Check(&config, static); len(states) > 0 {
			t.Errorf("%q: certificates %+v", main, states)
		}
		acme.New(acme.Options{Static: static, Log: slog.New(slog.DiscardHandler)}).Complete(&config)
		if len(config.ACME.Certificates) > 0 || len(config.TLS.Certificates) > 0 {
			t.Errorf("%q: certificates %+v", main, config.ACME.Certificates)
		}
	}
}
