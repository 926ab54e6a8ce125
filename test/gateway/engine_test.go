package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/lab/dockerd"
	"fairlead/internal/lab/program"
)

// TestEndpoints follows a real engine over TCP: with TLS and certificates of clients, and via a proxy
// that lets only the requests through that the guide names.
func TestEndpoints(t *testing.T) {
	certs := t.TempDir()
	certificates(t, certs, map[string]string{"engine": "engine.test", "client": "client.test"})
	x := newStack(t, "--host=tcp://0.0.0.0:2376", "--tlsverify", "--tlscacert="+certs+"/authority.pem",
		"--tlscert="+certs+"/engine.pem", "--tlskey="+certs+"/engine.key").onHost()
	x.filter(2375)
	for name, flags := range map[string][]string{
		"TLS": {"--providers.docker.endpoint=tcp://engine.test:2376", "--providers.docker.tls.ca=/certs/authority.pem",
			"--providers.docker.tls.cert=/certs/client.pem", "--providers.docker.tls.key=/certs/client.key"},
		"filter": {"--providers.docker.endpoint=tcp://engine.test:2375"},
	} {
		t.Run(name, func(t *testing.T) {
			x := &example{stack: &stack{T: t, engine: x.engine, web: x.web}, host: x.host}
			x.gateway([]string{"--add-host", "engine.test:" + x.bridge(), "-v", certs + ":/certs:ro"}, flags...)
			x.server("one", "bridge")
			x.until(200, "GET", "http://one.example.com/")
			x.docker("stop", "one")
			x.until(404, "GET", "http://one.example.com/")
			x.docker("start", "one")
			x.until(200, "GET", "http://one.example.com/")
		})
	}
}

// TestNetworks connects servers and the gateway with networks while they run. The gateway has a host
// name that does not have its ID.
func TestNetworks(t *testing.T) {
	x := newStack(t).onHost()
	x.docker("network", "create", "front")
	x.docker("network", "create", "back")
	x.gateway([]string{"--hostname", "gateway.example.com", "--network", "front", "-v",
		"/var/run/docker.sock:/var/run/docker.sock"}, "--providers.docker")
	x.server("both", "back", "front")
	x.until(200, "GET", "http://both.example.com/")
	x.server("late", "bridge")
	x.until(503, "GET", "http://late.example.com/")
	x.docker("network", "connect", "front", "late")
	x.until(200, "GET", "http://late.example.com/")
	x.server("behind", "back")
	x.until(503, "GET", "http://behind.example.com/")
	x.docker("network", "connect", "back", "gateway")
	x.until(200, "GET", "http://behind.example.com/")
}

// gateway starts the gateway with flags of docker run and of its own. It is removed at the end of the
// test.
func (x *example) gateway(run []string, flags ...string) {
	x.Helper()
	x.removeAtEnd("gateway")
	args := append([]string{"run", "-d", "--name", "gateway", "-p", "80:80"}, run...)
	x.docker(append(append(args, "gateway:test", "--entrypoints.web.address=:80"), flags...)...)
}

// server starts a server for NAME.example.com on networks. It is removed at the end of the test.
func (x *example) server(name string, networks ...string) {
	x.Helper()
	x.removeAtEnd(name)
	x.docker("create", "--name", name, "--network", networks[0],
		"--label", "traefik.http.routers."+name+".rule=Host(`"+name+".example.com`)",
		"--label", "traefik.http.services."+name+".loadbalancer.server.port=80",
		"--entrypoint", "/web", "web", "serve", name)
	for _, n := range networks[1:] {
		x.docker("network", "connect", n, name)
	}
	x.docker("start", name)
}

// removeAtEnd removes a container at the end of the test.
func (x *example) removeAtEnd(name string) {
	ctx := context.WithoutCancel(x.Context())
	x.Cleanup(func() {
		if x.Failed() {
			out, _ := x.engine.Docker(ctx, "logs", name).CombinedOutput()
			x.Logf("the log of %s:\n%s", name, out)
		}
		if _, err := x.engine.Run(ctx, "rm", "--force", name); err != nil {
			x.Error(err)
		}
	})
}

// filtering is HAProxy's configuration for a port, with the engine's socket.
const filtering = `
global
	maxconn 64
defaults
	mode http
	timeout connect 10s
	timeout client 10s
	timeout server 10s
frontend engine
	bind :%d
	http-request deny unless METH_GET { path_reg ^/(events|containers/json|containers/[^/]+/json)$ }
	default_backend engine
backend engine
	server engine unix@%s
`

// filter starts HAProxy as a filtering proxy of the engine's socket. It ends with the test.
func (x *example) filter(port int) {
	x.Helper()
	config := filepath.Join(x.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf(strings.TrimSpace(filtering)+"\n", port, x.engine.Root()+dockerd.Socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		x.Fatal(err)
	}
	haproxy, err := program.Find("haproxy")
	if err != nil {
		x.Fatal(err)
	}
	cmd := exec.Command(haproxy, "-db", "-f", config)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := child.Start(context.WithoutCancel(x.Context()), cmd, child.Place{Netns: x.host.File()})
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		if err := p.Kill(); err != nil {
			x.Error(err)
		}
		if x.Failed() {
			x.Logf("HAProxy:\n%s", &said)
		}
	})
}

// bridge returns the address of the engine's bridge, which containers of all networks reach.
func (x *example) bridge() string {
	x.Helper()
	out, err := x.engine.Command(x.Context(), "ip", "-4", "-brief", "address", "show", "docker0").Output()
	words := strings.Fields(string(out)) // docker0 DOWN 172.17.0.1/16
	if err != nil || len(words) < 3 {
		x.Fatalf("the bridge's address: %q, %v", out, err)
	}
	address, _, _ := strings.Cut(words[2], "/")
	return address
}
