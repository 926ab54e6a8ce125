package gateway_test

import (
	"strings"
	"testing"

	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"
)

// TestNothingIsLeftOutInSilence checks that valid settings without effect are reported, and
// that settings which protect are refused rather than left out.
func TestNothingIsLeftOutInSilence(t *testing.T) {
	no := false
	notes := strings.Join(gateway.Unused(model.Static{
		Providers: model.Providers{Docker: &model.Docker{Watch: &no}, Swarm: &model.Docker{Password: "x"}},
		Metrics:   &model.Metrics{AddServicesLabels: &no, HeaderLabels: map[string]string{"agent": "User-Agent"}},
		EntryPoints: []model.EntryPoint{{Name: "web",
			MaxHeaderBytes: 1 << 19, HTTP3: &model.HTTP3{}, MaxAge: 1}},
	}), "\n")
	for _, want := range []string{"docker.watch=false", "swarm.username or password", "headerLabels",
		"web.http.maxHeaderBytes", "keepAliveMaxTime for connections of HTTP/3"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note about %s:\n%s", want, notes)
		}
	}
	if notes := gateway.Unused(model.Static{EntryPoints: []model.EntryPoint{{Name: "web", MaxHeaderBytes: 1 << 20,
		MaxAge: 1, SanitizePath: &no}}}); notes != nil {
		t.Errorf("notes about defaults and settings with an effect: %v", notes)
	}
	w := newWorld(t, model.Static{})
	secure := serviceOf("https://127.0.0.1:1")
	secure.LoadBalancer.ServersTransport = "pinned@file"
	stored := certificate(t, "stored.test")
	stored.Stores = []string{"other"}
	reasons := map[string]string{}
	for _, s := range w.gateway.Apply(&model.Config{
		HTTP: model.HTTP{
			Services: map[string]*model.Service{"secure@file": secure, "plain@file": serviceOf()},
			Routers: map[string]*model.Router{"quiet@file": {Rule: "Path(`/`)", Service: "plain@file",
				Observability: &model.Observability{TraceVerbosity: "detailed"}}},
			Middlewares: map[string]*model.Middleware{"auth@file": {ForwardAuth: &model.ForwardAuth{
				Address: "http://127.0.0.1:1", TLS: &model.ClientTLS{CAOptional: &no}}}},
			ServersTransports: map[string]*model.ServersTransport{"pinned@file": {PeerCertURI: "spiffe://x"}},
		},
		TCP: model.TCP{Routers: map[string]*model.TCPRouter{"db@file": {Rule: "HostSNI(`a.test`"}}},
		TLS: model.TLS{Certificates: []model.Certificate{stored},
			Options: map[string]*model.TLSOptions{"old@file": {PreferServerCipherSuites: true}}},
	}, nil) {
		reasons[s.Name] = string(s.State) + " " + strings.Join(s.Reasons, "; ")
	}
	for name, want := range map[string]string{"secure@file": "disabled peerCertURI",
		"quiet@file": "warning observability", "db@file": "column", "auth@file": "warning tls.caOptional",
		"old@file": "warning preferServerCipherSuites", "stored.test": "warning stores"} {
		if !strings.Contains(reasons[name], want) {
			t.Errorf("%s: %q, want %q", name, reasons[name], want)
		}
	}
}
