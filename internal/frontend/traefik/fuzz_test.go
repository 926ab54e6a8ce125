package traefik

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzContainers checks that no labels end the program: every container can have any.
func FuzzContainers(f *testing.F) {
	f.Add("traefik.http.routers.a.rule", "r", "traefik.http.services.a.loadbalancer.server.port", "80")
	f.Add("traefik.http.routers.a.tls.domains[0].main", "a", "traefik.http.routers.A.tls", "false")
	f.Add("traefik.http.services.a.loadbalancer.servers[1].url", "http://a", "traefik.http.services.a", "true")
	f.Add("traefik.tcp.services.a.loadbalancer", "true", "traefik.udp.services.a.loadbalancer", "false")
	f.Add("traefik.http.middlewares.a.plugin.x.y.z", "true", "traefik.http.middlewares.a.chain.middlewares[0]", "b")
	f.Add("traefik.docker.network", "x", "traefik.tls.stores.default.defaultgeneratedcert.domain.main", "a")
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue string) {
		c := whoami("")
		c.Labels = map[string]string{key: value, otherKey: otherValue}
		config, _ := containersConfig([]Container{c, c}, DockerOptions{})
		for name, r := range config.HTTP.Routers {
			if !strings.HasSuffix(name, "@docker") || r == nil || r.Rule == "" || r.Service == "" {
				t.Errorf("router %q is incomplete: %+v", name, r)
			}
		}
		for name, s := range config.HTTP.Services {
			if s == nil || s.LoadBalancer == nil {
				t.Errorf("service %q is no load balancer: %+v", name, s)
			}
		}
	})
}

// FuzzFiles checks that no text of a file ends the program.
func FuzzFiles(f *testing.F) {
	f.Add(dynamicYAML, true)
	f.Add(dynamicTOML, false)
	f.Add("x: &x {strategy: wrr}\nhttp: {services: {a: {loadBalancer: {<<: *x, strategy: p2c}}}}", true)
	f.Add("a: &a [*a]", true)
	f.Add("http: {routers: {a: {? [b] : c, tls: }}, services: [1, {}]}", true)
	f.Add("http: &x {<<: *x}", true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string, isYAML bool) {
		path := filepath.Join(dir, "a.toml")
		if isYAML {
			path = filepath.Join(dir, "a.yml")
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		Files([]string{path})
	})
}
