package gateway_test

import (
	"strings"
	"testing"
)

// TestSwarm deploys the seed's stacks to a swarm with the gateway's image instead of Traefik's: the
// routers are in the labels of services, their servers are tasks on an overlay network, and the
// certificate is from the authority. An update of the service then replaces all tasks under load: no
// request may fail.
func TestSwarm(t *testing.T) {
	s := newSeed(t)
	s.docker("swarm", "init", "--advertise-addr", "127.0.0.1")
	s.deploy("testdata/swarm/gateway.yml", "Traefik")
	s.deploy("testdata/swarm/website.yml", "site")
	if got := s.get("http://example.com/shop", "127.0.0.1:80"); !strings.HasPrefix(got,
		"301 https://example.com/shop ") {
		t.Errorf("http answers %q, want the redirection to https", got)
	}
	if got := s.get("https://example.com/shop", "127.0.0.1:443"); !strings.HasPrefix(got, "200 website") ||
		!strings.HasSuffix(got, "GET /shop https") {
		t.Errorf("https answers %q", got)
	}
	s.roots = s.authority.Root
	s.until(200, "GET", "https://example.com/shop") // with the authority's certificate
	l := s.load(200)
	s.docker("service", "update", "--force", "site_website")
	wantAll(t, "update", l.end())
	if n := s.authority.Orders(); n != 1 {
		t.Errorf("the authority has accepted %d orders, want one", n)
	}
}

// deploy deploys a stack of the swarm.
func (x *seed) deploy(file, name string) {
	x.Helper()
	cmd := x.engine.Docker(x.Context(), "stack", "deploy", "--resolve-image", "never", "-c", file, name)
	cmd.Env = append(cmd.Environ(), x.variables()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.Fatalf("docker stack deploy %s: %v\n%s", file, err, out)
	}
}
