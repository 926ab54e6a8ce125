package file_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/file"
)

// fullGateway has fields of all kinds: lists, maps, durations, pointers, empty structs.
const fullGateway = `
gateway:
  entryPoints:
    web:
      address: ":80"
      http: {redirections: {entryPoint: {to: websecure, permanent: false}}}
    websecure:
      address: "192.0.2.1:443"
      asDefault: true
      forwardedHeaders: {trustedIPs: [10.0.0.0/8]}
      http: {tls: {options: modern}, middlewares: [auth], encodedCharacters: {allowEncodedSlash: false}}
      transport:
        respondingTimeouts: {readTimeout: 5s, idleTimeout: 0s}
        keepAliveMaxRequests: 9
        maxConnections: 20
        maxConnectionsPerClient: 10
        sniStrict: true
      http3: {advertisedPort: 8443}
      proxyProtocol: {trustedIPs: [192.0.2.9]}
    dns: {address: ":53/udp", udp: {timeout: 9s}}
  providers: {docker: {exposedByDefault: false, network: web}}
  api: {dashboard: false}
  ping: {entryPoint: web}
  metrics: {prometheus: {entryPoint: web, buckets: [0.1, 5], headerLabels: {tenant: X-Tenant}}}
  accessLog: {format: json, filters: {statusCodes: ["500-599"], minDuration: 1s}, fields: {defaultMode: drop}}
  certificatesResolvers:
    le: {acme: {email: a@example.org, storage: /var/lib/acme.json, tlsChallenge: {}}}
  serversTransport: {insecureSkipVerify: true, forwardingTimeouts: {dialTimeout: 3s}}
  core: {defaultRuleSyntax: v3}
  http:
    routers:
      shop: {rule: "Host(` + "`shop.example.org`" + `)", service: shop, middlewares: [auth], tls: {}, priority: 7}
    middlewares:
      auth: {basicAuth: {users: ["a:$apr1$x"]}}
      sub: {headers: {customRequestHeaders: {X-A: "", X-B: "true"}}}
      white: {ipAllowList: {sourceRange: [10.0.0.0/8], ipStrategy: {ipv6Subnet: 64}}}
      limit: {rateLimit: {average: 3, period: 1m}}
    services:
      shop:
        loadBalancer:
          passHostHeader: false
          sticky: {cookie: {name: s, httpOnly: true, path: ""}}
          servers: [{service: shop, scheme: https}, {label: app=shop, port: 8080, weight: 0}, {url: "http://192.0.2.7"}]
      two: {weighted: {services: [{name: shop, weight: 2}, {name: other@docker}]}}
    serversTransports:
      own: {rootCAs: [/etc/ca.pem]}
  tcp:
    routers:
      db: {rule: "HostSNI(` + "`*`" + `)", service: db, tls: {passthrough: true, domains: [{main: a.example, sans: [b.example]}]}}
    services:
      db: {loadBalancer: {servers: [{address: "192.0.2.7:5432"}], proxyProtocol: {version: 1}}}
  udp:
    routers: {dns: {entryPoints: [dns], service: dns}}
    services: {dns: {loadBalancer: {servers: [{address: "192.0.2.7:53"}]}}}
  tls:
    certificates: [{certFile: /etc/a.pem, keyFile: /etc/a.key}]
    options: {modern: {minVersion: VersionTLS13, clientAuth: {clientAuthType: RequestClientCert}}}
`

// TestGatewayRoundTrip writes and reads a gateway in YAML and in JSON.
func TestGatewayRoundTrip(t *testing.T) {
	spec := read(t, fullGateway).Spec
	if e := spec.Gateway.Static.EntryPoints; len(e) != 3 || e[2].Timeouts.Idle == nil ||
		*e[2].Timeouts.Idle != 0 || !e[2].SNIStrict || e[2].Timeouts.Write != nil || e[2].HTTP3.AdvertisedPort != 8443 {
		t.Fatalf("entry points: %+v", e)
	}
	var yaml, json bytes.Buffer
	if err := errors.Join(file.Write(&yaml, spec), file.WriteJSON(&json, spec)); err != nil {
		t.Fatal(err)
	}
	for _, again := range []string{yaml.String(), json.String()} {
		if got := read(t, again).Spec; !got.Gateway.Equal(spec.Gateway) {
			t.Errorf("written:\n%s\nreads as %+v\nwant %+v", again, got.Gateway, spec.Gateway)
		}
	}
}

// TestProvidersRoundTrip writes and reads a gateway with each provider.
func TestProvidersRoundTrip(t *testing.T) {
	for _, provider := range []string{"docker", "swarm"} {
		spec := read(t, "gateway:\n  entryPoints: {web: {address: ':80'}}\n  providers: {"+provider+
			": {endpoint: 'tcp://192.0.2.1:2375', labelScope: project, labelFiles: [/etc/a]}}\n").Spec
		var text bytes.Buffer
		if err := file.Write(&text, spec); err != nil {
			t.Fatal(err)
		}
		if got := read(t, text.String()).Spec; !got.Gateway.Equal(spec.Gateway) {
			t.Errorf("%s: written:\n%s", provider, text.String())
		}
	}
}

// TestGatewayMistakes checks that each mistake has its line and its field.
func TestGatewayMistakes(t *testing.T) {
	const text = `services:
  shop: {address: 192.0.2.1, port: 80}
gateway:
  entryPionts: {}
  entryPoints:
    web: {address: "80"}
    tls: {address: ":443", http: {redirections: {entryPoint: {to: wbe}}}}
  providers: {file: {filename: a.yml}}
  http:
    routers:
      shop:
        rule: Host
        servcie: shop
      down: {service: [a, {b: c}]}
    services:
      both: {loadBalancer: {}, weighted: {}}
      dark:
        loadBalancer:
          servers: [{url: "http://a", down: no}]
  tls:
    certificates: [{certFile: /etc/a.pem}]
`
	_, err := file.Read([]file.Input{{Name: "f.yaml", Text: []byte(text)}})
	var found file.Mistakes
	if !errors.As(err, &found) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		`f.yaml:4: gateway.entryPionts: the key "entryPionts" is not known: the nearest one is "entrypoints"`,
		`f.yaml:6: gateway.entryPoints.web.address: value "80": want [ADDRESS]:PORT`,
		`f.yaml:7: gateway.entryPoints.tls.http.redirections.entryPoint.to: has no effect: there is no entry point "wbe"`,
		`f.yaml:8: gateway.providers: want docker or swarm`,
		`f.yaml:13: gateway.http.routers.shop.servcie: the key "servcie" is not known: the nearest one is "service"`,
		`f.yaml:14: gateway.http.routers.down.service`,
		`f.yaml:16: gateway.http.services.both: it has several kinds`,
		`f.yaml:19: gateway.http.services.dark.loadBalancer.servers[0].down: the key "down" is not known`,
		`f.yaml:21: gateway.tls.certificates[0]: it has no keyFile`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %s in\n%v", want, err)
		}
	}
	if len(found) != 9 {
		t.Errorf("%d mistakes:\n%v", len(found), err)
	}
}

// TestGatewayMistakesOfTheDaemon checks that mistakes that the daemon finds get the line of
// the object, or of the field that they mention.
func TestGatewayMistakesOfTheDaemon(t *testing.T) {
	s := read(t, fullGateway)
	for _, c := range []struct{ at, text, want string }{
		{"gateway.http.routers.shop", "service shop does not exist", "gateway.http.routers.shop.service"},
		{"gateway.http.middlewares.sub", "x", "gateway.http.middlewares.sub"},
		{"gateway.entrypoints.web", "x", "gateway.entryPoints.web"},
		{"gateway.tls.certificates[0]", "x", "gateway.tls.certificates[0]"},
		{"gateway", "x", "gateway"},
	} {
		err := s.Locate(&api.Fault{Code: api.Invalid, Err: api.Mistakes{{At: c.at, Text: c.text}}})
		var found file.Mistakes
		if !errors.As(err, &found) || found[0].Field != c.want || found[0].Line < 3 {
			t.Errorf("%s: %+v, want the field %s", c.at, found, c.want)
		}
	}
}

// fullCluster has objects of the cluster in all sections.
const fullCluster = `name: site
cluster:
  gateway:
    http:
      routers: {shop: {rule: Host("a"), service: shop}}
      services: {shop: {loadBalancer: {servers: [{network: shop, label: app=shop, port: 8080}]}}}
    tcp:
      services: {db: {loadBalancer: {servers: [{network: shop, name: db-*, port: 5432, tls: true}]}}}
    udp:
      services: {dns: {loadBalancer: {servers: [{network: shop, port: 53}]}}}
    tls:
      options: {modern: {minVersion: VersionTLS13}}
`

// TestClusterGateway reads and writes objects of the cluster.
func TestClusterGateway(t *testing.T) {
	for _, text := range []string{fullCluster, "cluster: {gateway: {}}", "cluster: {gateway: }"} {
		spec := read(t, text).Spec
		if spec.ClusterGateway == nil {
			t.Fatalf("%s: there is no gateway of the cluster", text)
		}
		var yaml, json bytes.Buffer
		if err := errors.Join(file.Write(&yaml, spec), file.WriteJSON(&json, spec)); err != nil {
			t.Fatal(err)
		}
		for _, again := range []string{yaml.String(), json.String()} {
			got := read(t, again).Spec.ClusterGateway
			if got == nil || len(got.Selectors()) != len(spec.ClusterGateway.Selectors()) ||
				len(got.TLS.Options) != len(spec.ClusterGateway.TLS.Options) {
				t.Errorf("written:\n%s\nreads as %+v\nwant %+v", again, got, spec.ClusterGateway)
			}
		}
	}
	s := read(t, fullCluster)
	err := s.Locate(&api.Fault{Code: api.Invalid, Err: api.Mistakes{{At: "cluster.gateway.http.routers.shop",
		Text: "x"}}})
	if err == nil || !strings.Contains(err.Error(), ":5: cluster.gateway.http.routers.shop: x") {
		t.Errorf("a mistake that the daemon has found: %v", err)
	}
	wrong := strings.Replace(fullCluster, "label:", "lable:", 1)
	_, err = file.Read([]file.Input{{Name: "f.yaml", Text: []byte(wrong)}})
	if err == nil || !strings.Contains(err.Error(), `f.yaml:6: cluster.gateway.http.services.shop`) {
		t.Errorf("an unknown key: %v", err)
	}
	if read(t, "name: site").Spec.ClusterGateway != nil {
		t.Error("files without a gateway of the cluster have one")
	}
}
