package traefik

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fairlead/internal/model/gateway"
)

// writeFiles writes files by their paths below a new directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func relative(dir string, problems []Problem) (found []string) {
	for _, p := range problems {
		if p.Source != dir {
			p.Source, _ = filepath.Rel(dir, p.Source)
		}
		found = append(found, p.String())
	}
	return found
}

const dynamicYAML = `
http:
  routers:
    app:
      rule: Host(` + "`" + `{{ env "FAIRLEAD_TEST_HOST" }}` + "`" + `)
      service: split
      middlewares: [auth, limit@docker, ping@internal]
      tls:
        options: strong
  services:
    split:
      weighted:
        services:
          - {name: app, weight: 3}
          - {name: blog@swarm}
        sticky: {cookie: {httpOnly: true, sameSite: none}}
        healthCheck: {}
    app:
      loadBalancer:
        serversTransport: internal
        servers: [{url: "http://10.0.0.1"}]
    copy:
      mirroring: {service: app, mirrors: [{name: other, percent: 10}]}
    spare:
      failover: {service: app, fallback: other}
  middlewares:
    auth:
      chain: {middlewares: [users, headers@file]}
    errors:
      errors: {service: app, status: ["500-599"], query: /x}
  serversTransports:
    internal: {serverName: a.org, forwardingTimeouts: {dialTimeout: 3}}
`

const dynamicTOML = `
[tcp.routers.db]
rule = "HostSNI(` + "`*`" + `)"
service = "db"
[tcp.routers.db.tls]
options = "default"
[[tcp.services.db.weighted.services]]
name = "one"
weight = 1
[udp.routers.dns]
service = "dns"
[[udp.services.dns.loadBalancer.servers]]
address = "10.0.0.1:53"
[[tls.certificates]]
certFile = "a.crt"
keyFile = "a.key"
[[tls.certificates]]
certFile = "b.crt"
[tls.options.default]
minVersion = "VersionTLS13"
[tls.options.strong.clientAuth]
caFiles = ["ca.crt"]
clientAuthType = "RequireAndVerifyClientCert"
[tls.stores.default.defaultCertificate]
certFile = "c.crt"
keyFile = "c.key"
`

func TestFiles(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_HOST", "a.org")
	dir := writeFiles(t, map[string]string{"a.yml": dynamicYAML, "below/b.toml": dynamicTOML, ".hidden/c.yml": "x: y",
		"README.md": "#"})
	config, problems := Files([]string{dir})
	want := gateway.Config{
		HTTP: gateway.HTTP{
			Routers: map[string]*gateway.Router{"app@file": {Rule: "Host(`a.org`)", Service: "split@file",
				Middlewares: []string{"auth@file", "limit@docker", "ping@internal"},
				TLS:         &gateway.RouterTLS{Options: "strong@file"}}},
			Services: map[string]*gateway.Service{
				"split@file": {Weighted: &gateway.Weighted{
					Services:    []gateway.WeightedService{{Name: "app@file", Weight: new(3)}, {Name: "blog@docker"}},
					Sticky:      &gateway.Sticky{Cookie: &gateway.Cookie{HTTPOnly: true, SameSite: "none"}},
					HealthCheck: &struct{}{}}},
				"app@file": {LoadBalancer: &gateway.LoadBalancer{ServersTransport: "internal@file",
					Servers: []gateway.Server{{URL: "http://10.0.0.1"}}}},
				"copy@file": {Mirroring: &gateway.Mirroring{Service: "app@file",
					Mirrors: []gateway.Mirror{{Name: "other@file", Percent: 10}}}},
				"spare@file": {Failover: &gateway.Failover{Service: "app@file", Fallback: "other@file"}},
			},
			Middlewares: map[string]*gateway.Middleware{
				"auth@file":   {Chain: &gateway.Chain{Middlewares: []string{"users@file", "headers@file"}}},
				"errors@file": {Errors: &gateway.Errors{Service: "app@file", Status: []string{"500-599"}, Query: "/x"}},
			},
			ServersTransports: map[string]*gateway.ServersTransport{"internal@file": {ServerName: "a.org",
				ForwardingTimeouts: gateway.ForwardingTimeouts{DialTimeout: 3e9}}},
		},
		TCP: gateway.TCP{
			Routers: map[string]*gateway.TCPRouter{"db@file": {Rule: "HostSNI(`*`)", Service: "db@file",
				TLS: &gateway.TCPRouterTLS{RouterTLS: gateway.RouterTLS{Options: "default"}}}},
			Services: map[string]*gateway.TCPService{"db@file": {Weighted: &gateway.TCPWeighted{
				Services: []gateway.WeightedService{{Name: "one@file", Weight: new(1)}}}}},
		},
		UDP: gateway.UDP{
			Routers: map[string]*gateway.UDPRouter{"dns@file": {Service: "dns@file"}},
			Services: map[string]*gateway.UDPService{"dns@file": {LoadBalancer: &gateway.UDPLoadBalancer{
				Servers: []gateway.UDPServer{{Address: "10.0.0.1:53"}}}}},
		},
		TLS: gateway.TLS{
			Certificates: []gateway.Certificate{{CertFile: "a.crt", KeyFile: "a.key"}},
			Options: map[string]*gateway.TLSOptions{"default": {MinVersion: "VersionTLS13"},
				"strong@file": {ClientAuth: gateway.ClientAuth{CAFiles: []string{"ca.crt"},
					ClientAuthType: "RequireAndVerifyClientCert"}}},
			Stores: map[string]*gateway.Store{"default": {DefaultCertificate: &gateway.Certificate{CertFile: "c.crt",
				KeyFile: "c.key"}}},
		},
	}
	if diff := cmp.Diff(want, config, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	wantProblems := []string{"below/b.toml: certificate b.crt: it has no keyFile"}
	if diff := cmp.Diff(wantProblems, relative(dir, problems)); diff != "" {
		t.Error(diff)
	}
}

func TestFilesAreFaulty(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"1.yml":  "http:\n  routers:\n    a: {rule: r, service: s}\n    b:\n      rule: r\n      tsl: {}\n",
		"2.yml":  "http: [",
		"3.yaml": "http:\n  routers:\n    a: {rule: other, service: s}\n  servcies: {}\nentryPoints: {}\n",
		"4.toml": "[http.services.two]\nmirroring = {}\nfailover = {}\n[http.services.none]\n",
		"5.toml": "a = ",
		"6.yml":  `{{ sha1 "x" }}`,
		"7.yml":  "http:\n  services:\n    s: {loadBalancer: {servers: [{url: u, weight: x}]}}\n",
		"8.conf": "",
		"9.yml": "http:\n  services:\n    f: {failover: {service: a, fallback: b, errors: {status: [500]}}}\n" +
			"  routers:\n    p: {rule: r, service: s, parentRefs: [a]}\n",
	})
	config, problems := Files([]string{dir, filepath.Join(dir, "8.conf"), filepath.Join(dir, "absent.yml")})
	want := []string{
		`1.yml: router b@file: line 6: http.routers.b.tsl: the key "tsl" is not known: the nearest one is "tls"`,
		"2.yml: parse YAML: yaml: line 1: did not find expected node content",
		`3.yaml: line 4: http.servcies: the key "servcies" is not known: the nearest one is "services"`,
		`3.yaml: line 5: entryPoints: the key "entryPoints" is not known: want one of http, tcp, udp, tls`,
		"4.toml: service none@file: http.services.none: it has no kind: want one of loadbalancer, highestrandomweight, weighted, mirroring, " +
			"failover",
		"4.toml: service two@file: http.services.two: it has several kinds, mirroring and failover: give each its own name",
		"5.toml: parse TOML: line 1: unexpected EOF; expected value",
		`6.yml: parse the template: template: 6.yml:1: function "sha1" not defined`,
		`7.yml: service s@file: line 3: http.services.s.loadBalancer.servers[0].weight: value "x": want an integer`,
		`9.yml: service f@file: line 3: http.services.f.failover.errors: Traefik's key "errors" is not supported: ` +
			"the fallback is in use only while the service is down",
		`9.yml: router p@file: line 5: http.routers.p.parentRefs: Traefik's key "parentRefs" is not supported: ` +
			"give each router its whole rule and all of its middlewares",
		`8.conf: the extension ".conf" is not known: want .yml, .yaml or .toml`,
		"absent.yml: read the file: no such file or directory",
		"3.yaml: router a@file: it is already defined with other settings by " + dir + "/1.yml, whose definition stays: " +
			"make both equal, or choose another name",
	}
	if diff := cmp.Diff(want, relative(dir, problems)); diff != "" {
		t.Error(diff)
	}
	routers := map[string]*gateway.Router{"a@file": {Rule: "r", Service: "s@file"}}
	services := map[string]*gateway.Service{"f@file": {Failover: &gateway.Failover{Service: "a@file",
		Fallback: "b@file"}}}
	wantConfig := gateway.Config{HTTP: gateway.HTTP{Routers: routers, Services: services}}
	if diff := cmp.Diff(wantConfig, config, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestSectionsIgnoreCase checks that two spellings of a section have the objects of both, and that the
// second definition of an object is reported.
func TestSectionsIgnoreCase(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"1.yml": "http:\n  routers:\n    a: {rule: r, service: s}\n    b: {rule: r, service: s}\n  Routers:\n" +
			"    b: {rule: other, service: s}\n    c: {rule: r, service: s}\nHTTP:\n  routers:\n    d: {rule: r, service: s}\n" +
			"tls:\n  certificates: [{certFile: a, keyFile: a}]\n  Certificates: [{certFile: b, keyFile: b}]\n",
		"2.toml": "[http.routers.e]\nrule = \"r\"\nservice = \"s\"\n[http.Routers.f]\nrule = \"r\"\nservice = \"s\"\n" +
			"[http.Routers.e]\nrule = \"other\"\nservice = \"s\"\n",
	})
	config, problems := Files([]string{dir})
	want := []string{"1.yml: line 6: http.routers.b: it is defined twice, because names of sections ignore case: the " +
		"first definition, in line 4, stays; leave one out", "2.toml: http.Routers.e: it is defined twice, because names " +
		"of sections ignore case: the first definition stays; leave one out"}
	if diff := cmp.Diff(want, relative(dir, problems)); diff != "" {
		t.Error(diff)
	}
	rules := ""
	for _, name := range slices.Sorted(maps.Keys(config.HTTP.Routers)) {
		rules += name + "=" + config.HTTP.Routers[name].Rule + " "
	}
	if want := "a@file=r b@file=r c@file=r d@file=r e@file=other f@file=r "; rules != want {
		t.Errorf("routers %q, want %q", rules, want)
	}
	if len(config.TLS.Certificates) != 2 {
		t.Errorf("certificates: %v, want two", config.TLS.Certificates)
	}
}
