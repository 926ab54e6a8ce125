package gateway_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	model "fairlead/internal/model/gateway"
	"fairlead/test/authority"
)

// seed is the project of DockerLab's stacks.
type seed struct {
	*example
	authority *authority.Authority
	dir, data string
}

// TestSeed runs the stacks of DockerLab's text with the gateway's image in place of Traefik's: it
// obtains the website's certificate from the authority, and keeps it.
func TestSeed(t *testing.T) {
	x := newSeed(t)
	x.up()
	x.roots = x.authority.Root
	const url = "https://example.com/shop"
	first, body := x.until(200, "GET", url)
	if body != "website GET /shop https \n" || first.ProtoMajor != 2 {
		t.Errorf("the website answers %q with %s", body, first.Proto)
	}
	redirect, _ := x.ask("GET", "http://example.com/shop")
	if got := redirect.Header.Get("Location"); redirect.StatusCode != 301 || got != url {
		t.Errorf("http: %s to %q, want 301 to %s", redirect.Status, got, url)
	}
	for path, want := range map[string]string{
		"metrics":     `traefik_service_requests_total{code="200",method="GET",protocol="http",service="my-service@docker"`,
		"api/rawdata": `"my-routerhttp@docker"`, "dashboard/routers": "my-routerhttp@docker",
	} {
		x.want(200, want, "GET", "http://localhost:8888/"+path)
	}
	x.wantLog("dockerlab_traefik_1", "my-httprouter", `"GET /shop HTTP/2.0" 200`)
	serial := first.TLS.PeerCertificates[0].SerialNumber
	x.docker("restart", "--time", "1", "dockerlab_traefik_1")
	for _, after := range []string{"a restart", "an update of the image"} {
		again, _ := x.until(200, "GET", url)
		if got := again.TLS.PeerCertificates[0].SerialNumber; got.Cmp(serial) != 0 {
			t.Errorf("after %s: certificate %v, want %v", after, got, serial)
		}
		x.nothingIsDue()
		x.compose("up", "--detach", "--force-recreate", "--no-deps", "traefik")
	}
	if n := x.authority.Orders(); n != 1 {
		t.Errorf("the authority has accepted %d orders, want one", n)
	}
	info, err := os.Stat(filepath.Join(x.data, "acme.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("acme.json: %v, %v, want mode 0600", info, err)
	}
}

// newSeed starts an engine, and an authority in the network namespace of its host.
func newSeed(t *testing.T) *seed {
	t.Helper()
	x := &seed{example: newStack(t).onHost(), dir: t.TempDir()}
	x.data = filepath.Join(x.dir, "acme")
	if err := os.Mkdir(x.data, 0o700); err != nil {
		t.Fatal(err)
	}
	x.authority = authority.Start(t, authority.Order{Address: x.bridge() + ":14000"},
		child.Place{Netns: x.host.File()})
	return x
}

// up starts the stacks. They are removed at the end of the test.
func (x *seed) up() {
	x.Helper()
	x.Cleanup(func() { x.down("dockerlab") })
	x.Cleanup(func() {
		if x.Failed() {
			out, _ := x.command(context.Background(), "logs", "--no-color").CombinedOutput()
			x.Logf("the stack's log:\n%s", out)
		}
	})
	x.compose("up", "--detach")
}

// compose runs docker-compose.
func (x *seed) compose(args ...string) {
	x.Helper()
	if out, err := x.command(x.Context(), args...).CombinedOutput(); err != nil {
		x.Fatalf("compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (x *seed) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker-compose", append([]string{"--project-name", "dockerlab", "--file",
		"testdata/seed/compose.yaml"}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+x.engine.Root()+"/run/docker.sock", "HOME="+x.dir)
	cmd.Env = append(cmd.Env, x.variables()...)
	return cmd
}

// variables are those that the stacks' files name.
func (x *seed) variables() []string {
	return []string{"AUTHORITY=" + x.authority.URL, "AUTHORITY_ROOTS=" + x.authority.Roots, "ACME_DATA=" + x.data}
}

// nothingIsDue checks that the gateway has the certificate, and obtains none.
func (x *seed) nothingIsDue() {
	x.Helper()
	var all []struct{ ACME *model.CertificateState }
	_, body := x.ask("GET", "http://localhost:8888/api/certificates")
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		x.Fatalf("%v: %s", err, body)
	}
	if c := all[0].ACME; c == nil || c.State != model.CertificateValid || time.Until(c.Next) < time.Hour {
		x.Errorf("certificates: %s", body)
	}
}
