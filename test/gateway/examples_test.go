package gateway_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/kernel/netns"
	"fairlead/test/place"
)

const examples = "../../examples/gateway"

// checks send the requests of each example.
var checks = map[string]func(*example){
	"two-networks": twoNetworks, "basic-auth": basicAuth, "v2-rules": v2Rules, "sticky-sessions": stickySessions,
	"forward-auth": forwardAuth, "wildcard-certificate": wildcardCertificate, "several-ports": severalPorts,
	"websocket": webSocket, "grpc": grpc, "tcp-sni": tcpSNI,
}

// example is a stack of examples/gateway that runs.
type example struct {
	*stack
	host  *netns.Namespace
	roots *x509.CertPool
}

// TestExamples starts each example with docker-compose, and sends requests.
func TestExamples(t *testing.T) {
	s := newStack(t)
	s.docker("tag", "gateway:test", "fairlead:latest")
	apps := filepath.Join(t.TempDir(), "apps")
	if err := build("./testdata/apps", apps); err != nil {
		t.Fatal(err)
	}
	s.app("traefik/whoami", apps, "EXPOSE 80")
	s.app("thomseddon/traefik-forward-auth:2", apps, "EXPOSE 4181")
	s.app("minio/minio", apps, "EXPOSE 9000")
	s.app("eclipse-mosquitto:2", apps, "EXPOSE 1883")
	s.app("moul/grpcbin", apps, "EXPOSE 80", "EXPOSE 443", "EXPOSE 9000", "EXPOSE 9001")
	host := s.onHost().host
	all, err := filepath.Glob(filepath.Join(examples, "*", "compose.yaml"))
	if err != nil || len(all) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range all {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			check := checks[name]
			if check == nil {
				t.Fatal("no check of this example")
			}
			x := &example{stack: &stack{T: t, engine: s.engine, web: s.web}, host: host}
			x.up(name)
			check(x)
		})
	}
}

// app imports the program as an image with the name of an application.
func (s *stack) app(name, program string, changes ...string) {
	s.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		s.Fatal(err)
	}
	at := filepath.Base(name)
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	_ = w.WriteHeader(&tar.Header{Name: at, Mode: 0o755, Size: int64(len(content))})
	_, _ = w.Write(content)
	_ = w.Close() // a buffer does not fail
	args := []string{"import", "--change", fmt.Sprintf("ENTRYPOINT [%q]", "/"+at)}
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	cmd := s.engine.Docker(s.Context(), append(args, "-", name)...)
	cmd.Stdin = &image
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("import %s: %v\n%s", name, err, out)
	}
}

// up starts a copy of the example, with certificates for it. The stack is removed at the end
// of the test.
func (x *example) up(name string) {
	x.Helper()
	dir := filepath.Join(x.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(examples, name))); err != nil {
		x.Fatal(err)
	}
	x.roots = certificates(x.T, filepath.Join(dir, "certs"), map[string]string{"wildcard": "*.example.com",
		"vault": "vault.example.com"})
	x.Cleanup(func() {
		if x.Failed() {
			out, _ := x.compose(context.Background(), name, dir, "logs", "--no-color").CombinedOutput()
			x.Logf("the stack's log:\n%s", out)
		}
		x.down(name)
	})
	if out, err := x.compose(x.Context(), name, dir, "up", "--detach").CombinedOutput(); err != nil {
		x.Fatalf("compose up: %v\n%s", err, out)
	}
}

// down removes the containers and networks of a project. It does not run docker-compose, which needs a second of CPU
// time.
func (x *example) down(project string) {
	x.Helper()
	of := []string{"--quiet", "--filter", "label=com.docker.compose.project=" + project}
	for _, step := range []struct{ list, remove []string }{
		{append([]string{"ps", "--all"}, of...), []string{"rm", "--force", "--volumes"}},
		{append([]string{"network", "ls"}, of...), []string{"network", "rm"}},
	} {
		ids, err := x.engine.Run(context.Background(), step.list...)
		if err == nil && ids == "" {
			err = errors.New("the project has nothing of this kind")
		}
		if err == nil {
			_, err = x.engine.Run(context.Background(), append(step.remove, strings.Fields(ids)...)...)
		}
		if err != nil {
			x.Errorf("remove what docker-compose has made: docker %v: %v", step.list, err)
		}
	}
}

func (x *example) compose(ctx context.Context, project, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker-compose", append([]string{"--project-name", project, "--file",
		filepath.Join(dir, "compose.yaml")}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+x.engine.Root()+"/run/docker.sock", "HOME="+dir)
	return cmd
}

// dial connects to a published port of the engine's host.
func (x *example) dial(address string) (conn net.Conn, err error) {
	_, port, _ := net.SplitHostPort(address)
	err = x.host.Do(func() error {
		conn, err = net.DialTimeout("tcp", "127.0.0.1:"+port, place.Timeout)
		return err
	})
	return conn, err
}

// client returns an HTTP client of its own connections.
func (x *example) client() *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: x.roots},
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) { return x.dial(address) }}
	x.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: place.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request with headers, NAME VALUE …, and returns the answer with its body.
func (x *example) ask(method, url string, headers ...string) (*http.Response, string) {
	x.Helper()
	answer, body, err := send(x.client(), method, url, headers)
	if err != nil {
		x.Fatalf("%s %s: %v", method, url, err)
	}
	return answer, body
}

func send(client *http.Client, method, url string, headers []string) (*http.Response, string, error) {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, string(body), err
}

// until sends a request until the answer has the status, for up to a minute: the gateway and
// the applications are starting still.
func (x *example) until(status int, method, url string, headers ...string) (*http.Response, string) {
	x.Helper()
	client := x.client()
	var answer *http.Response
	var body string
	x.patiently(func() (bool, string) {
		var err error
		answer, body, err = send(client, method, url, headers)
		return err == nil && answer.StatusCode == status,
			fmt.Sprintf("%s %s: want %d, got %v %s %v", method, url, status, answer, body, err)
	})
	return answer, body
}

// want sends a request once, and compares the status and a part of the body.
func (x *example) want(status int, part, method, url string, headers ...string) {
	x.Helper()
	answer, body := x.ask(method, url, headers...)
	if answer.StatusCode != status || !strings.Contains(body, part) {
		x.Errorf("%s %s %v: %d %q, want %d %q", method, url, headers, answer.StatusCode, body, status, part)
	}
}
