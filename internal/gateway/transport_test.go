package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// TestUnusableTransports checks that no service uses the default transport, or a part of the one that it names, if that
// cannot be used: it might not verify its servers.
func TestUnusableTransports(t *testing.T) {
	faulty := []string{"-----BEGIN nothing"}
	secure := httptest.NewTLSServer(named("reached"))
	defer secure.Close()
	for name, s := range map[string]struct {
		http  *model.ServersTransport
		tcp   *model.TCPServersTransport
		known bool
		want  status.State
	}{
		"usable": {&model.ServersTransport{InsecureSkipVerify: true}, &model.TCPServersTransport{}, false,
			status.Enabled},
		"missing": {nil, nil, false, status.Disabled},
		"not read": {&model.ServersTransport{InsecureSkipVerify: true}, &model.TCPServersTransport{}, true,
			status.Disabled},
		"authority": {&model.ServersTransport{InsecureSkipVerify: true, RootCAs: faulty},
			transportWith(model.ServerTLS{RootCAs: faulty}), false, status.Disabled},
		"peer's URI": {&model.ServersTransport{InsecureSkipVerify: true, PeerCertURI: "x"},
			transportWith(model.ServerTLS{PeerCertURI: "x"}), false, status.Disabled},
	} {
		w := newWorld(t, model.Static{})
		config := &model.Config{HTTP: model.HTTP{
			Routers:  map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "http@file"}},
			Services: map[string]*model.Service{"http@file": serviceOf(secure.URL)}},
			TCP: model.TCP{Services: map[string]*model.TCPService{"tcp@file": tcpServiceOf("127.0.0.1:9")}}}
		config.HTTP.Services["http@file"].LoadBalancer.ServersTransport = "t@file"
		config.TCP.Services["tcp@file"].LoadBalancer.ServersTransport = "t@file"
		if s.http != nil {
			config.HTTP.ServersTransports = map[string]*model.ServersTransport{"t@file": s.http}
			config.TCP.ServersTransports = map[string]*model.TCPServersTransport{"t@file": s.tcp}
		}
		var known []status.Status
		for _, kind := range []string{"transport", "TCP transport"} {
			if s.known {
				known = append(known, status.Status{Kind: kind, Name: "t@file", State: status.Disabled,
					Reasons: []string{"its key is wrong"}})
			}
		}
		for _, status := range w.gateway.Apply(config, known) {
			if (status.Name == "http@file" || status.Name == "tcp@file") && status.State != s.want {
				t.Errorf("%s: %s %s is %s: %q, want %s", name, status.Kind, status.Name, status.State, status.Reasons,
					s.want)
			}
		}
		if code, body := w.get("http://a.test/"); (code == http.StatusOK) != (s.want == status.Enabled) {
			t.Errorf("%s: the server answers %d, %q", name, code, body)
		}
	}
}

func transportWith(t model.ServerTLS) *model.TCPServersTransport {
	return &model.TCPServersTransport{TLS: &t}
}
