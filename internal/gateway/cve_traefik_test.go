package gateway_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestTraefikCVEs sends the requests of vulnerabilities that were found in Traefik. An
// empty text is not looked for in what the server has received.
func TestTraefikCVEs(t *testing.T) {
	authority := server(t, func(rw http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Forwarded") || strings.Contains(name, "_") {
				rw.Header().Set("X-Asked", rw.Header().Get("X-Asked")+fmt.Sprintln(name, values))
			}
		}
		rw.Header().Set("X-User", "ann")
	}).LoadBalancer.Servers[0].URL
	middlewares := map[string]*model.Middleware{
		"strip@file":      {StripPrefix: &model.StripPrefix{Prefixes: []string{"/api"}}},
		"stripRegex@file": {StripPrefixRegex: &model.StripPrefixRegex{Regex: []string{"/api"}}},
		"replace@file":    {ReplacePathRegex: &model.ReplacePathRegex{Regex: "^/api(.*)", Replacement: "/v1$1"}},
		"auth@file": {ForwardAuth: &model.ForwardAuth{Address: authority,
			AuthResponseHeaders: []string{"X-Asked", "X-User"}}},
	}
	strict := model.EntryPoint{EncodedCharacters: &model.EncodedCharacters{AllowEncodedHash: true}}
	for _, s := range []struct {
		cve, middleware string
		at              model.EntryPoint
		request         string
		status          int
		must, mustNot   string
	}{
		{"CVE-2026-48020", "strip@file", model.EntryPoint{}, "GET /api../admin", 400, "", "admin"},
		{"CVE-2026-48020", "strip@file", model.EntryPoint{}, "GET /api%2e%2e/admin", 400, "", "admin"},
		{"CVE-2026-48020", "strip@file", model.EntryPoint{}, "GET /api/../../admin", 200, "GET /admin\n", ".."},
		{"CVE-2026-40912", "stripRegex@file", model.EntryPoint{}, "GET /api%2e/admin", 400, "", "admin"},
		{"CVE-2026-40912", "stripRegex@file", model.EntryPoint{}, "GET /api..%2fadmin", 400, "", "admin"},
		{"CVE-2026-40912", "replace@file", model.EntryPoint{}, "GET /api%2F..%2fadmin", 400, "", "admin"},
		{"CVE-2026-39858", "", model.EntryPoint{}, "GET /\r\nX_Forwarded_For: 6.6.6.6\r\nX_Real_Ip: 6.6.6.6", 200,
			"X-Real-Ip: 127.0.0.1", "6.6.6.6"},
		{"CVE-2026-39858", "auth@file", model.EntryPoint{}, "GET /\r\nX_User: root", 200,
			"X-User: ann", "X_user: root"},
		{"an alias with dots", "", model.EntryPoint{}, "GET /\r\nX.Forwarded.For: 6.6.6.6\r\nX.Real_Ip: 6.6.6.6", 200,
			"", "6.6.6.6"},
		{"GHSA-6384-m2mw-rf54", "auth@file", model.EntryPoint{}, "GET /\r\nX-Forwarded-Prefix: /secret", 200,
			"X-User: ann", "/secret"},
		{"GHSA-6384-m2mw-rf54", "auth@file", model.EntryPoint{}, "GET /\r\nX_Forwarded_Prefix: /secret", 200,
			"X-User: ann", "/secret"},
		{"CVE-2025-66490", "", strict, "GET /a%2Fb", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%5cb", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%00", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%3b", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%252e", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%3fb", 400, "", "GET"},
		{"CVE-2025-66490", "", strict, "GET /a%23b", 200, "GET /a%23b\n", ""},
		{"Connection: X-Forwarded-For", "", model.EntryPoint{}, "GET /\r\nConnection: X-Forwarded-For", 200,
			"X-Forwarded-For: 127.0.0.1", ""},
		{"Connection: X-User", "auth@file", model.EntryPoint{}, "GET /\r\nConnection: X-User", 200, "X-User: ann", ""},
	} {
		t.Run(s.cve, func(t *testing.T) {
			var chain []string
			if s.middleware != "" {
				chain = []string{s.middleware}
			}
			w := exposed(t, s.at, middlewares, chain...)
			line, fields, _ := strings.Cut(s.request, "\r\n")
			if fields != "" {
				fields += "\r\n"
			}
			got := w.send(line + " HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n" + last)
			_, first, _ := strings.Cut(got, "\r\n\r\n")
			first, _, _ = strings.Cut(first, "GET /last")
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", s.status)) || !strings.Contains(first, s.must) ||
				s.mustNot != "" && strings.Contains(first, s.mustNot) {
				t.Errorf("%q: got %q, want %d with %q and not %q", s.request, got, s.status, s.must, s.mustNot)
			}
		})
	}
}

// TestPathsMatchWhatServersSee protects a path by a router of its own, and asks for it in
// other forms: none may reach the server through another router.
func TestPathsMatchWhatServersSee(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{
		"admin@file": {Rule: "PathPrefix(`/admin`)", Service: "refuse@file"},
		"all@file":   {Rule: "PathPrefix(`/`)", Service: "s@file"},
	}, map[string]*model.Service{"s@file": server(t, echoed), "refuse@file": serviceOf()})
	for _, path := range []string{"/admin", "//admin", "/./admin", "/x/../admin", "/x/%2e%2e/admin", "/%61dmin",
		"/x/.%2E/%61%64min", "/%2e/admin", "///x//..//admin"} {
		got := w.send("GET " + path + " HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 503 ") {
			t.Errorf("%s: %.200q, want the router of /admin, which answers 503", path, got)
		}
	}
	// What stays encoded reaches the server as it was matched, and not decoded.
	for _, path := range []string{"/%2Fadmin", "/x%2F..%2Fadmin", "/x%5C..%5Cadmin", "/%2561dmin"} {
		got := w.send("GET " + path + " HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
		if !strings.Contains(got, "GET "+path+"\n") {
			t.Errorf("%s: %.200q, want it unchanged", path, got)
		}
	}
}

// TestTLSOfClients checks the versions, the cipher suites and the key exchange.
func TestTLSOfClients(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, nil)
	for _, s := range []struct {
		name   string
		config *tls.Config
		want   bool
	}{
		{"TLS 1.1", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		{"TLS 1.2 with CBC", &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256}}, false},
		{"TLS 1.2 with AEAD", &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		{"TLS 1.3", &tls.Config{MinVersion: tls.VersionTLS13}, true},
	} {
		s.config.InsecureSkipVerify = true
		c, err := tls.Dial("tcp", w.address, s.config)
		if (err == nil) != s.want {
			t.Errorf("%s: error %v", s.name, err)
		}
		if err != nil {
			continue
		}
		if state := c.ConnectionState(); state.Version == tls.VersionTLS13 && state.CurveID != tls.X25519MLKEM768 {
			t.Errorf("%s: the key exchange is %v", s.name, state.CurveID)
		}
		c.Close()
	}
}
