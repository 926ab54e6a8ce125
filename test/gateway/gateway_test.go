// Package gateway_test runs the gateway's image in a real Docker engine, in place of
// Traefik's.
package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/dockerd"
	"fairlead/test/authority"
	"fairlead/test/compiled"
	"fairlead/test/engines"
	"fairlead/test/place"
)

// stack is an engine with the gateway and its network.
type stack struct {
	*testing.T
	engine *dockerd.Engine
	web    string
}

// directory has what built has made, "" before. TestMain removes it.
var directory string

// built returns a directory with the test's program, web, and the archive of the gateway's image,
// image.tar.
var built = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "fairlead-gateway-"); err != nil {
		return "", err
	}
	directory = dir
	binary := filepath.Join(dir, "fairlead")
	if err := compiled.Fairlead(binary); err != nil {
		return dir, err
	}
	pack := exec.Command("../../packaging/image", "gateway:test", filepath.Join(dir, "image.tar"),
		runtime.GOARCH+"="+binary)
	if out, err := pack.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("make the image: %w\n%s", err, out)
	}
	return dir, build("./testdata/web", filepath.Join(dir, "web"))
})

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{authority.Role: authority.Main})
	status := m.Run()
	if directory != "" {
		_ = os.RemoveAll(directory) // what stays is in the directory for temporary files
	}
	os.Exit(status)
}

// newStack starts an engine with more flags that has the images gateway and web.
func newStack(t *testing.T, flags ...string) *stack {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{T: t, web: filepath.Join(dir, "web")}
	// docker-proxy, which published ports need otherwise, can end under load: then the port refuses
	// connections until the container starts again.
	s.engine = engines.Start(t, dockerd.Options{Enter: []string{"unshare", "--net"},
		Flags: append(flags, "--userland-proxy=false")})
	if out, err := s.engine.Command(t.Context(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	engines.Image(t, s.engine, "web", s.web)
	load := s.engine.Docker(t.Context(), "load")
	in, err := os.Open(filepath.Join(dir, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	load.Stdin = in
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("docker load: %v\n%s", err, out)
	}
	return s
}

func build(pkg, to string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

func (s *stack) docker(args ...string) string {
	s.Helper()
	out, err := s.engine.Run(s.Context(), args...)
	if err != nil {
		s.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, s.logs())
	}
	return strings.TrimSpace(out)
}

// logs returns what the gateway has written.
func (s *stack) logs() string {
	out, _ := s.engine.Docker(s.Context(), "logs", "gateway").CombinedOutput()
	return string(out)
}

// wantLog waits until the log of a container has all texts: the engine has them later than the container's clients have
// their answers.
func (s *stack) wantLog(container string, texts ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), place.Timeout)
	defer cancel()
	cmd := s.engine.Docker(ctx, "logs", "--follow", container)
	log := &expected{texts: texts, found: cancel}
	cmd.Stdout, cmd.Stderr = log, log
	err := cmd.Run() // until the log has the texts
	if len(log.texts) > 0 {
		s.Fatalf("the log of %s lacks %q: %v\n%s", container, log.texts, err, &log.said)
	}
}

// expected is an output that must have texts.
type expected struct {
	// texts are those that it does not have yet. found is called when it has all.
	texts []string
	found func()
	said  strings.Builder
}

func (e *expected) Write(b []byte) (int, error) {
	e.said.Write(b)
	e.texts = slices.DeleteFunc(e.texts, func(text string) bool { return strings.Contains(e.said.String(), text) })
	if len(e.texts) == 0 {
		e.found()
	}
	return len(b), nil
}

// patiently asks until something holds, for up to a minute. Nothing announces that Docker and the
// applications are ready.
func (s *stack) patiently(holds func() (is bool, otherwise string)) {
	s.Helper()
	for end := time.Now().Add(place.Timeout); ; time.Sleep(20 * time.Millisecond) {
		is, otherwise := holds()
		if is {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("after a minute: %s", otherwise)
		}
	}
}

// replica starts a container with the labels of the seed's stack.
func (s *stack) replica(name string) {
	s.Helper()
	args := []string{"run", "-d", "--name", name, "--network", "backends"}
	for _, l := range []string{
		"traefik.enable=true",
		"traefik.http.routers.my-router.rule=Host(`example.com`)",
		"traefik.http.routers.my-router.entrypoints=websecure",
		"traefik.http.routers.my-routerhttp.entrypoints=web",
		"traefik.http.routers.my-httprouter.rule=Host(`example.com`)",
		"traefik.http.routers.my-httprouter.middlewares=my-redirectscheme",
		"traefik.http.routers.my-httprouter.entrypoints=web",
		"traefik.http.routers.my-router.tls=true",
		"traefik.http.routers.my-router.tls.certresolver=myresolver",
		"traefik.http.routers.plain.rule=Host(`plain.example.com`)",
		"traefik.http.routers.plain.entrypoints=web",
		"traefik.http.services.my-service.loadbalancer.server.port=80",
		"traefik.http.middlewares.my-redirectscheme.redirectscheme.scheme=https",
		"traefik.http.middlewares.my-redirectscheme.redirectscheme.permanent=true",
	} {
		args = append(args, "--label", l)
	}
	s.docker(append(args, "--entrypoint", "/web", "web", "serve", name)...)
}

// get sends a request from the engine's host to the address, and returns the status, the
// Location header and the body. It waits for an answer other than 404 and 503.
func (s *stack) get(url, address string) string {
	s.Helper()
	out, err := s.engine.Command(s.Context(), s.web, "get", url, address).CombinedOutput()
	if err != nil {
		s.Fatalf("get %s: %v\n%s\n%s", url, err, out, s.logs())
	}
	return strings.TrimSpace(string(out))
}

// TestStack runs the seed's stack with the gateway's image instead of Traefik's, replaces the
// servers one by one under load, and changes the configuration: no request may fail. `make
// soak` runs it with 1,000 requests per second, 20 rounds and 1,000 changes.
func TestStack(t *testing.T) {
	s := newStack(t)
	dynamic := t.TempDir()
	s.docker("network", "create", "backends")
	s.docker("run", "-d", "--name", "gateway", "--network", "backends", "-p", "80:80", "-p", "443:443", "-p",
		"8888:8080", "--log-opt", "max-size=10m", // the engine's files are in memory
		"-v", "/var/run/docker.sock:/var/run/docker.sock", "-v", dynamic+":/dynamic", "gateway:test",
		"--providers.file.directory=/dynamic", "--log.level=DEBUG",
		"--api", "--api.dashboard=true", "--api.insecure=true",
		"--entrypoints.web.address=:80", "--entrypoints.websecure.address=:443",
		"--providers.docker=true", "--providers.docker.watch=true", "--providers.docker.exposedByDefault=false",
		"--accessLog", "--providers.docker.network=backends",
		"--certificatesresolvers.myresolver.acme.storage=/etc/traefik/acme/acme.json",
		"--certificatesresolvers.myresolver.acme.email=xx@xx.com",
		"--certificatesresolvers.myresolver.acme.httpchallenge.entrypoint=web",
		"--certificatesresolvers.myresolver.acme.httpchallenge=true",
		"--metrics", "--metrics.prometheus")
	for n := range 3 {
		s.replica(fmt.Sprintf("web%d-0", n))
	}
	if got := s.get("http://example.com/shop", "127.0.0.1:80"); !strings.HasPrefix(got,
		"301 https://example.com/shop ") {
		t.Errorf("http answers %q, want the redirection to https", got)
	}
	if got := s.get("https://example.com/shop", "127.0.0.1:443"); !strings.HasPrefix(got, "200 web") ||
		!strings.HasSuffix(got, "GET /shop https") {
		t.Errorf("https answers %q", got)
	}
	for path, want := range map[string]string{
		"/metrics":     `traefik_service_requests_total{code="200",method="GET",protocol="http",service="my-service@docker"`,
		"/api/rawdata": `"my-routerhttp.container:web0-0@docker"`,
	} {
		if got := s.get("http://127.0.0.1"+path, "127.0.0.1:8888"); !strings.Contains(got, want) {
			t.Errorf("%s lacks %s:\n%s", path, want, got)
		}
	}
	s.wantLog("gateway", "my-httprouter", `"GET /shop HTTP/2.0" 200`)
	x := s.onHost()
	x.starting()
	l := x.load(setting(t, "FAIRLEAD_GATEWAY_RATE", 200))
	x.roll(l, setting(t, "FAIRLEAD_GATEWAY_ROUNDS", 1))
	x.change(l, dynamic, setting(t, "FAIRLEAD_GATEWAY_CHANGES", 20))
	wantAll(t, "end", l.end())
}

// onHost returns the stack with clients on the engine's host.
func (s *stack) onHost() *example {
	s.Helper()
	host, err := netns.Open(fmt.Sprintf("/proc/%d/ns/net", s.engine.PID()))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { host.Close() })
	return &example{stack: s, host: host}
}
