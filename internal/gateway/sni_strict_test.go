package gateway_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestStrictEntryPoint checks that an entry point with sniStrict refuses handshakes for names without a certificate,
// for HTTP routers and TCP routers, without TLS options of the file provider, and that an explanation says so.
func TestStrictEntryPoint(t *testing.T) {
	for strict, refused := range map[bool]string{false: "fairlead.invalid", true: "no handshake"} {
		w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
			SNIStrict: strict}}})
		w.applyTCP(model.TCP{
			Routers: map[string]*model.TCPRouter{
				"known@file": {Rule: "HostSNI(`db.gateway.test`)", Service: "db@file", TLS: &model.TCPRouterTLS{}},
				"other@file": {Rule: "HostSNI(`db.other.test`)", Service: "db@file", TLS: &model.TCPRouterTLS{}}},
			Services: map[string]*model.TCPService{"db@file": tcpServer(t, func(c net.Conn) {
				_, _ = io.WriteString(c, "db\n") // the client fails by what it reads
			})},
		}, model.HTTP{
			Routers: map[string]*model.Router{
				"web@file": {Rule: "PathPrefix(`/`)", Service: "s@file", TLS: &model.RouterTLS{}}},
			Services: map[string]*model.Service{"s@file": server(t, named("hello"))}})
		for name, want := range map[string]string{"db.gateway.test": "*.gateway.test",
			"a.gateway.test": "*.gateway.test", "db.other.test": refused, "a.other.test": refused, "": refused} {
			if got, text := w.secureLine(&tls.Config{ServerName: name}); got != want {
				t.Errorf("strict %v: a client of %q gets %s, %q, want %s", strict, name, got, text, want)
			}
		}
		answer, err := w.gateway.Explain("web", http.MethodGet, "https://a.other.test/")
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(strings.Join(answer.Problems, "\n"), "sniStrict"); says != strict {
			t.Errorf("strict %v: the explanation says %q", strict, answer.Problems)
		}
	}
}
