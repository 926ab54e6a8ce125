package examples_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/kerneltest"

	"go.yaml.in/yaml/v3"
)

// siteFiles is the folder of the example.
const siteFiles = "../../examples/dockerlab/"

// containerAddress is the address of the website's container on its node's network.
const containerAddress = "172.31.0.2"

// TestDockerLab applies all of DockerLab's files on a director and four nodes. Requests to the
// virtual address are answered by all nodes in turn, and the responses do not pass through the
// director. Each node's gateway routes by the labels of its container. A node without a website,
// and a node without a link, get no more requests.
func TestDockerLab(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{director: "192.168.1.2", "tester": client}
	maps.Copy(hosts, proxies)
	l := newLAN(t, hosts)
	for name := range proxies {
		l.website(name)
		l.node(name)
	}
	l.start(director)
	l.daemons[director].Run("apply", "-f", siteFiles+"director.yaml")
	for _, at := range proxies {
		l.until("website", at, api.RealUp)
		l.until("website-http", at, api.RealUp)
	}

	l.countResponses()
	l.answer(slices.Collect(maps.Keys(proxies))...)
	if all, of := l.responses(); all == 0 || of != 0 {
		t.Errorf("the client received %d packets from the virtual address, %d of them from the director; want some, and 0",
			all, of)
	}
	const to = "https://example.com/shop"
	if status, location := l.request("http://example.com/shop"); status != 301 || location != to {
		t.Errorf("http: status %d to %q, want 301 to %s", status, location, to)
	}
	for _, url := range []string{"https://other.example/", "http://other.example/"} {
		if status, _ := l.request(url); status != 404 {
			t.Errorf("%s: status %d, want 404", url, status)
		}
	}

	_ = l.nginx[websiteOf("raspberrypi2")].Kill() // the exit status only shows that it was killed
	l.until("website", proxies["raspberrypi2"], api.RealDown)
	l.answer("raspberrypi0", "raspberrypi1", "raspberrypi3")
	l.sh("raspberrypi3", "ip link set eth0 down")
	l.until("website", proxies["raspberrypi3"], api.RealDown)
	l.answer("raspberrypi0", "raspberrypi1")
	l.sh("raspberrypi3", "ip link set eth0 up")
	l.until("website", proxies["raspberrypi3"], api.RealUp)
	l.answer("raspberrypi0", "raspberrypi1", "raspberrypi3")
	for _, d := range l.daemons {
		d.Stop()
	}
}

// website starts the website's container of a node: nginx, which answers with the node's name and
// the client's address.
func (l *lan) website(node string) {
	l.Helper()
	name := websiteOf(node)
	l.hosts[name] = kerneltest.Netns(l)
	l.sh(node, fmt.Sprintf("ip link add website type veth peer name eth0 netns /proc/%d/fd/%d &&"+
		" ip addr add 172.31.0.1/24 dev website && ip link set website up", os.Getpid(), l.hosts[name].File().Fd()))
	l.sh(name, "ip link set lo up && ip addr add "+containerAddress+"/24 dev eth0 && ip link set eth0 up")
	l.startNginx(name, 80, fmt.Sprintf(`server { listen 80; location / { return 200 "%s $http_x_forwarded_for"; } }`,
		node))
}

// websiteOf names the website's container of a node.
func websiteOf(node string) string { return "website of " + node }

// node starts a node's daemon and applies the node's file, in which the paths of the engine's
// socket, the log and the certificate are those of the test.
func (l *lan) node(name string) {
	l.Helper()
	l.start(name)
	d := l.daemons[name]
	l.Cleanup(func() { // the serving process outlives the daemon
		left := serving.Options{Directory: filepath.Join(d.Order.Run, "gateway"), Netns: l.hosts[name].File(),
			Log: slog.New(slog.DiscardHandler)}
		if err := serving.End(context.Background(), left); err != nil {
			l.Error(err)
		}
	})
	text, err := os.ReadFile(siteFiles + "node.yaml")
	if err != nil {
		l.Fatal(err)
	}
	file := filepath.Join(l.TempDir(), "node.yaml")
	placed := strings.NewReplacer("/var/run/docker.sock", l.engine(), "/var/log", l.TempDir(),
		"/etc/fairlead/dockerlab/example.com.pem", filepath.Join(l.certs, "cert"), "/etc/fairlead/dockerlab/example.com.key", filepath.Join(l.certs, "key"))
	if err := os.WriteFile(file, []byte(placed.Replace(string(text))), 0o600); err != nil {
		l.Fatal(err)
	}
	d.Run("apply", "-f", file)
}

// engine serves the part of a container engine's API that a gateway asks for, with one container
// that has the labels of the compose file. It returns the path of the socket.
func (l *lan) engine() string {
	l.Helper()
	text, err := os.ReadFile(siteFiles + "website/compose.yaml")
	if err != nil {
		l.Fatal(err)
	}
	var compose struct {
		Services map[string]struct{ Labels map[string]string }
	}
	if err := yaml.Unmarshal(text, &compose); err != nil || len(compose.Services["website"].Labels) == 0 {
		l.Fatalf("the compose file has no labels: %v", err)
	}
	container := map[string]any{"Id": "website", "Name": "/website", "State": map[string]any{"Running": true},
		"Config":     map[string]any{"Labels": compose.Services["website"].Labels},
		"HostConfig": map[string]any{"NetworkMode": "bridge"}, "NetworkSettings": map[string]any{
			"Networks": map[string]any{"bridge": map[string]any{"IPAddress": containerAddress}}}}
	mux := http.NewServeMux()
	mux.HandleFunc("/containers/json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]any{map[string]any{"Id": "website", "State": "running"}})
	})
	mux.HandleFunc("/containers/website/json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(container)
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	socket := filepath.Join(l.TempDir(), "engine")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		l.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // it ends with the server
	l.Cleanup(func() { _ = server.Close() })
	return socket
}

// countResponses begins to count the packets that the client receives from the virtual address,
// and those of them that the director sent.
func (l *lan) countResponses() {
	l.Helper()
	mac := strings.TrimSpace(l.sh(director, "cat /sys/class/net/eth0/address"))
	l.sh("tester", fmt.Sprintf(`nft 'table netdev test {
		chain in { type filter hook ingress device eth0 priority 0;
			ip saddr %[1]s tcp sport 443 counter comment "all"
			ip saddr %[1]s tcp sport 443 ether saddr %[2]s counter comment "director"
		}
	}'`, vip, mac))
}

// responses returns the numbers of these packets.
func (l *lan) responses() (all, director int) {
	l.Helper()
	for line := range strings.Lines(l.sh("tester", "nft list table netdev test")) {
		_, counter, found := strings.Cut(line, "counter packets ")
		if !found {
			continue
		}
		n := 0
		if _, err := fmt.Sscan(counter, &n); err != nil {
			l.Fatal(err)
		}
		if strings.Contains(line, `"all"`) {
			all = n
		} else {
			director = n
		}
	}
	return all, director
}

// request sends a request to the virtual address, and returns the status and the Location.
func (l *lan) request(url string) (status int, location string) {
	l.Helper()
	port := map[bool]string{true: ":443", false: ":80"}[strings.HasPrefix(url, "https:")]
	asked, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		l.Fatal(err)
	}
	answer, err := l.transport("tester", vip+port).RoundTrip(asked)
	if err != nil {
		l.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // only the header matters
	return answer.StatusCode, answer.Header.Get("Location")
}
