package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/test/place"
)

// hostFile is what each host declares for itself, siteFile what one declares for all.
const (
	hostFile = `
gateway:
  entryPoints:
    web: {address: ":8000"}
    db: {address: ":8002"}
    names: {address: ":8003/udp"}
`
	siteFile = `
name: site
cluster:
  gateway:
    http:
      routers:
        shop: {entryPoints: [web], rule: "PathPrefix(` + "`/`" + `)", service: shop, middlewares: [tag]}
        elsewhere: {entryPoints: [other], rule: "PathPrefix(` + "`/`" + `)", service: shop}
      middlewares:
        tag: {headers: {customResponseHeaders: {X-Site: cluster}}}
      services:
        shop: {loadBalancer: {servers: [{network: shop, port: 8081}]}}
    tcp:
      routers:
        shop: {entryPoints: [db], rule: "HostSNI(` + "`*`" + `)", service: shop}
      services:
        shop: {loadBalancer: {servers: [{network: shop, port: 8080}]}}
    udp:
      routers:
        shop: {entryPoints: [names], service: shop}
      services:
        shop: {loadBalancer: {servers: [{network: shop, port: 8080}]}}
`
)

// apply applies a file on a host.
func (s *site) apply(h *host, text string) {
	s.Helper()
	path := filepath.Join(s.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	h.Run("apply", "-f", path)
}

// gets returns the answer of a host's gateway, and who has answered.
func (s *site) gets(h *host) (status int, who, tag string) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network,
		at string) (net.Conn, error) {
		return place.Dial(s.client.Do, network, at, place.Timeout)
	}}
	r, err := (&http.Client{Transport: transport, Timeout: place.Timeout}).Get("http://" + h.address() + ":8000/")
	if err != nil {
		return 0, err.Error(), ""
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	return r.StatusCode, strings.TrimSpace(string(body)), r.Header.Get("X-Site")
}

// served waits until 12 requests in turn to a host's gateway were answered by sandboxes of exactly these hosts.
func (s *site) served(h *host, by ...string) {
	s.Helper()
	var got []string
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the last answers of the gateway of %s were those of %q, want %q", h.name, got, by)
		}
	})
	s.until(fmt.Sprintf("the gateway of %s has servers on %v", h.name, by), func() bool {
		got = nil
		for range 12 {
			status, who, tag := s.gets(h)
			if status != http.StatusOK || tag != "cluster" {
				who = fmt.Sprintf("%d %s %s", status, who, tag)
			}
			if !slices.Contains(got, who) {
				got = append(got, who)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, by)
	})
}

// unfailing sends requests to a host's gateway until during returns. None of them may fail.
func (s *site) unfailing(h *host, what string, during func()) {
	s.Helper()
	failed, asked := s.requestsTo(h.address()+":8000", 100, 30*time.Second, during)
	s.Logf("%s: %d of %d requests fail", what, len(failed), asked)
	if len(failed) > 0 || asked == 0 {
		s.Errorf("%s: %d of %d requests fail: %+v", what, len(failed), asked, failed[:min(3, len(failed))])
	}
}

// TestGateways declares routers and services of the gateway once. The gateways of all hosts serve them, with
// servers on two hosts. No request fails when a server drains or ends, when etcd is away, and when daemons
// start without it. At last the objects are removed.
func TestGateways(t *testing.T) {
	s := &site{lan: newLAN(t), at: vip}
	s.joined()
	one, two, three := s.hosts[0], s.hosts[1], s.hosts[2]
	one.Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--subnet", "10.9.0.0/16")
	s.client = s.connected(50)
	var end func()
	for _, h := range s.hosts {
		s.until(h.name+" has the network", h.has)
		s.apply(h, hostFile)
	}
	for _, h := range []*host{two, three} {
		b := s.box(h)
		end = place.Serve(t, b.Do, ":8081", httpAnswer(h.name))
		place.Answer(t, b.Do, ":8080", func(place.Request) string { return h.name })
	}
	s.apply(one, siteFile)
	for _, h := range s.hosts {
		s.served(h, "host2", "host3")
		s.listed(h, "shop@cluster", "enabled")
		s.listed(h, "elsewhere@cluster", "disabled")
		for _, protocol := range []string{"tcp", "udp"} {
			s.streams(h, protocol)
		}
	}
	s.unfailing(one, "a host is drained", func() {
		three.Run("cluster", "drain", "host2")
		s.served(one, "host3")
		three.Run("cluster", "drain", "host2", "--undo")
		s.served(one, "host2", "host3")
	})
	s.etcd.Members[0].Kill()
	s.unfailing(two, "etcd is away", func() {
		two.Stop()
		two.Start()
		s.served(two, "host2", "host3")
		two.Kill()
		two.Start()
		s.served(two, "host2", "host3")
	})
	s.etcd.Members[0].Start()
	s.unfailing(one, "a server ends", func() {
		end()
		for range 10 {
			s.served(one, "host2")
		}
	})
	// A connection continues when its router is removed, also on a host without a sandbox in the network.
	slow, err := place.Dial(s.client.Do, "tcp", net.JoinHostPort(one.address(), "8002"), place.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	s.asks(slow)
	s.apply(two, "name: site\nx-left: nothing")
	for _, h := range s.hosts {
		s.until(h.name+" has no router", func() bool {
			status, _, _ := s.gets(h)
			return status == http.StatusNotFound
		})
	}
	s.asks(slow)
}

// asks fails the test unless a sandbox answers on a connection.
func (s *site) asks(conn net.Conn) {
	s.Helper()
	_ = conn.SetDeadline(time.Now().Add(place.Timeout))
	answer := make([]byte, 64)
	_, _ = fmt.Fprintln(conn, "who")
	if n, err := conn.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "host") {
		s.Errorf("an open connection is answered by %q, %v", answer[:n], err)
	}
}

// httpAnswer answers an HTTP request with a name.
func httpAnswer(name string) func(net.Conn) {
	return func(conn net.Conn) {
		buffer := make([]byte, 4096)
		if _, err := conn.Read(buffer); err == nil {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(name), name)
		}
	}
}

// listed waits until `fairlead gateway routers` shows a router in a state.
func (s *site) listed(h *host, router, state string) {
	s.Helper()
	s.until(fmt.Sprintf("%s shows %s %s", h.name, router, state), func() bool {
		for line := range strings.Lines(h.Run("gateway", "routers")) {
			if strings.Contains(line, " "+router+" ") && strings.Contains(line, " "+state+" ") {
				return true
			}
		}
		return false
	})
}

// streams waits until a sandbox answers via a host's gateway by TCP or UDP.
func (s *site) streams(h *host, protocol string) {
	s.Helper()
	port := map[string]string{"tcp": "8002", "udp": "8003"}[protocol]
	s.until(h.name+" forwards "+protocol, func() bool {
		conn, err := place.Dial(s.client.Do, protocol, net.JoinHostPort(h.address(), port), place.Timeout)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		answer := make([]byte, 64)
		_, _ = fmt.Fprintln(conn, "who")
		n, _ := conn.Read(answer)
		return strings.HasPrefix(string(answer[:n]), "host")
	})
}
