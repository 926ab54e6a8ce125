// Package prometheus_test runs a real Prometheus on a host with a daemon, a gateway and a cluster, and asks it for
// everything that the dashboard and the alerts in packaging need.
package prometheus_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/certificate"
	"fairlead/internal/proxy"
	"fairlead/test/daemons"
	"fairlead/test/etcd"
	"fairlead/test/place"
	"fairlead/test/process"
	"fairlead/test/shell"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI,
		serving.Role: serving.Main})
	os.Exit(m.Run())
}

// declaration is what the host declares: a gateway with a service that a check watches, one whose only server is
// closed, so that requests are sent again, and an entry point that accepts one connection.
const declaration = `
gateway:
  entryPoints:
    web: {address: "192.0.2.1:8000"}
    secure: {address: "192.0.2.1:8443"}
    narrow: {address: "192.0.2.1:8001", transport: {maxConnections: 1}}
    metrics: {address: "127.0.0.1:8082"}
  metrics: {prometheus: {entryPoint: metrics, addRoutersLabels: true}}
  http:
    routers:
      site: {entryPoints: [web], rule: "PathPrefix(` + "`/`" + `)", service: site}
      secure: {entryPoints: [secure], rule: "PathPrefix(` + "`/`" + `)", service: site, tls: {}}
      closed: {entryPoints: [web], rule: "PathPrefix(` + "`/closed`" + `)", service: closed, middlewares: [again]}
    middlewares:
      again: {retry: {attempts: 2}}
    services:
      site: {loadBalancer: {servers: [{url: "http://127.0.0.1:8081"}], healthCheck: {path: /, interval: 100ms}}}
      closed: {loadBalancer: {servers: [{url: "http://127.0.0.1:1"}]}}
  tls: {certificates: [{certFile: DIR/chain.pem, keyFile: DIR/key.pem}]}
`

// world is a host at 192.0.2.1 with a daemon, and a client at 192.0.2.7.
type world struct {
	*testing.T
	daemon       *daemons.Daemon
	host, client *netns.Namespace
}

// newWorld returns a host on which something happens to everything that has metrics.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, host: kerneltest.Netns(t), client: kerneltest.Netns(t)}
	shell.Run(t, w.host.Do, "ip link set lo up && ip link add eth0 type veth peer name eth0 netns "+path(w.client)+
		" && ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up")
	shell.Run(t, w.client.Do, "ip addr add 192.0.2.7/24 dev eth0 && ip link set eth0 up && "+
		"ip route add default via 192.0.2.1")
	order := daemons.In(t.TempDir())
	order.Metrics, order.Version = "127.0.0.1:9464", "devel"
	w.daemon = daemons.New(t, order, child.Place{Netns: w.host.File()})
	w.publishes()
	w.repairs()
	w.balances()
	w.routes()
	w.joins()
	return w
}

// path returns the path of a namespace, for ip.
func path(ns *netns.Namespace) string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.File().Fd())
}

// publishes attaches a sandbox, and publishes a port of it in each mode that counts.
func (w *world) publishes() {
	w.Helper()
	box := kerneltest.Netns(w)
	at := process.Seen(box.Path())
	w.daemon.Run("network", "create", "web", "--subnet", "172.30.0.0/24")
	w.daemon.Run("attach", "web", at, "--name", "shop")
	place.Serve(w, box.Do, ":80", place.Hangup)
	for port, via := range map[int]string{8080: "ebpf", 8081: "nat", 8082: "proxy"} {
		w.daemon.Run("publish", "shop", fmt.Sprintf("192.0.2.1:%d:80", port), "--via", via)
		w.dials(fmt.Sprintf("192.0.2.1:%d", port))
	}
	w.Cleanup(func() { w.daemon.Run("detach", "shop") }) // the proxy outlives the daemon while it has ports
}

// repairs removes the address of the network's bridge, and waits until the daemon has added it again.
func (w *world) repairs() {
	w.Helper()
	shell.Run(w, w.host.Do, "ip addr flush dev fl-web")
	w.until("the daemon repairs the address", func() bool {
		return strings.Contains(shell.Run(w, w.host.Do, "ip addr show dev fl-web"), "172.30.0.1/24")
	})
}

// balances adds a service with a real server that answers, and one that is closed.
func (w *world) balances() {
	w.Helper()
	w.daemon.Run("service", "add", "site", "198.51.100.10:80", "--real", "name=shop:80", "--real", "172.30.0.1:81",
		"--check", "tcp", "--interval", "100ms", "--fall", "1")
	w.until("the closed real server is down", func() bool {
		_, down, found := strings.Cut(w.daemon.Run("service", "ls"), "172.30.0.1:81")
		return found && strings.Contains(down, "down")
	})
	w.dials("198.51.100.10:80")
}

// routes serves HTTP for the gateway, and sends it requests.
func (w *world) routes() {
	w.Helper()
	place.Serve(w, w.host.Do, "127.0.0.1:8081", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096)) // the answer does not depend on it
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	pair, err := certificate.New("shop.example.com")
	if err != nil {
		w.Fatal(err)
	}
	dir := w.TempDir()
	file := filepath.Join(dir, "fairlead.yaml")
	for path, text := range map[string][]byte{file: []byte(strings.ReplaceAll(declaration, "DIR", dir)),
		filepath.Join(dir, "chain.pem"): pair.Chain, filepath.Join(dir, "key.pem"): pair.Key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			w.Fatal(err)
		}
	}
	w.daemon.Run("apply", "-f", file)
	w.gets("http://192.0.2.1:8000/", http.StatusOK)
	w.gets("https://192.0.2.1:8443/", http.StatusOK)
	w.gets("http://192.0.2.1:8000/closed", http.StatusBadGateway)
	for range 2 { // the second is one too many
		c, err := place.Dial(w.client.Do, "tcp", "192.0.2.1:8001", place.Timeout)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { c.Close() })
	}
}

// joins makes the host a cluster of its own, with a virtual address.
func (w *world) joins() {
	w.Helper()
	members := etcd.Start(w, []etcd.Spot{{Host: "127.0.0.1", In: w.host.Do}})
	w.daemon.Run("cluster", "init", "--etcd", strings.Join(members.Endpoints(), ","), "--node-name", "host1",
		"--address", "192.0.2.1")
	w.daemon.Run("cluster", "address", "add", "192.0.2.10/24", "--hold", "1s")
}

// until waits until something holds.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for end := time.Now().Add(place.Timeout); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("timeout: %s", what)
		}
	}
}

// dials opens and closes a connection of the client.
func (w *world) dials(to string) {
	w.Helper()
	c, err := place.Dial(w.client.Do, "tcp", to, place.Timeout)
	if err != nil {
		w.Fatal(err)
	}
	_, _ = c.Read(make([]byte, 1)) // the server closes it
	c.Close()
}

// gets sends a request of the client, and checks the status of the answer.
func (w *world) gets(url string, want int) {
	w.Helper()
	client := http.Client{Timeout: place.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the gateway's own certificate
		DialContext: func(_ context.Context, network, to string) (net.Conn, error) {
			return place.Dial(w.client.Do, network, to, place.Timeout)
		}}}
	r, err := client.Get(url)
	if err != nil {
		w.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != want {
		w.Errorf("%s: %s, want %d", url, r.Status, want)
	}
}
