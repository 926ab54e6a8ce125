package gateway_test

import (
	"strings"
	"testing"
)

// TestSwarm deploys the seed's stacks to a swarm with the gateway's image instead of Traefik's: the
// routers are in the labels of services, and their servers are tasks on an overlay network. An update
// of the service then replaces all tasks under load: no request may fail.
func TestSwarm(t *testing.T) {
	s := newStack(t)
	s.docker("swarm", "init", "--advertise-addr", "127.0.0.1")
	s.docker("stack", "deploy", "--resolve-image", "never", "-c", "testdata/swarm/gateway.yml", "Traefik")
	s.docker("stack", "deploy", "--resolve-image", "never", "-c", "testdata/swarm/website.yml", "site")
	if got := s.get("http://example.com/shop", "127.0.0.1:80"); !strings.HasPrefix(got,
		"301 https://example.com/shop ") {
		t.Errorf("http answers %q, want the redirection to https", got)
	}
	if got := s.get("https://example.com/shop", "127.0.0.1:443"); !strings.HasPrefix(got, "200 website") ||
		!strings.HasSuffix(got, "GET /shop https") {
		t.Errorf("https answers %q", got)
	}
	l := s.onHost().load(200)
	s.docker("service", "update", "--force", "site_website")
	wantAll(t, "update", l.end())
}
