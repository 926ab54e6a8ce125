package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/gateway/opening"
	model "fairlead/internal/model/gateway"
)

// claim is a PROXY header for a client at 192.0.2.7.
const claim = "PROXY TCP4 192.0.2.7 198.51.100.2 4660 443\r\n"

// reportClient writes the address of the client as a PROXY header claims it.
func reportClient(c net.Conn) {
	seen, err := opening.ReadHeader(c)
	if err != nil {
		return
	}
	host, _, _ := net.SplitHostPort(seen.RemoteAddr().String())
	_, _ = io.WriteString(seen, host+"\n") // the client fails by what it reads
}

// TestProxyHeaders checks which clients may claim an address, and that servers get it.
func TestProxyHeaders(t *testing.T) {
	for trusted, want := range map[string]string{"127.0.0.0/8": "192.0.2.7", "192.0.2.0/24": "", "": ""} {
		entry := model.EntryPoint{Name: "web", Address: "127.0.0.1:0", ProxyProtocol: []string{trusted}}
		if trusted == "" {
			entry.ProxyProtocol, entry.ProxyProtocolInsecure, want = nil, true, "192.0.2.7"
		}
		w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{entry}})
		body := strings.Repeat("x", 300<<10)
		w.apply(map[string]*model.Router{"a@file": {Rule: "PathPrefix(`/`)", Service: "a@file"}},
			map[string]*model.Service{"a@file": server(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Client", r.Header.Get("X-Real-Ip"))
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
				_, _ = io.WriteString(w, body) // the client may be gone
			})})
		c := w.dial()
		_, _ = io.WriteString(c, claim+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") // the read fails
		b, _ := io.ReadAll(c)
		answer := string(b)
		if want == "" && strings.Contains(answer, " 200 OK") {
			t.Errorf("trusted %q: a stranger's header is taken: %.60s", trusted, answer)
		}
		if want != "" && (!strings.Contains(answer, "Client: "+want+"\r\n") || !strings.HasSuffix(answer, body)) {
			t.Errorf("trusted %q: %d bytes, %.100s", trusted, len(answer), answer)
		}
		if status, _ := w.get("http://a/"); status != 200 {
			t.Errorf("trusted %q: without a header: %d", trusted, status)
		}
	}
}

// TestProxyHeadersToServers checks both versions and both places of the setting, with plain
// connections and with TLS that the gateway terminates, and that a claimed address is passed on.
func TestProxyHeadersToServers(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		ProxyProtocolInsecure: true}}})
	tcp := model.TCP{Services: map[string]*model.TCPService{}, Routers: map[string]*model.TCPRouter{},
		ServersTransports: map[string]*model.TCPServersTransport{
			"v1@file": {ProxyProtocol: &model.ProxyProtocol{Version: 1}}}}
	for name, change := range map[string]func(*model.TCPLoadBalancer){
		"old": func(lb *model.TCPLoadBalancer) { lb.ProxyProtocol = &model.ProxyProtocol{} },
		"new": func(lb *model.TCPLoadBalancer) { lb.ServersTransport = "v1@file" },
	} {
		s := tcpServer(t, reportClient)
		change(s.LoadBalancer)
		tcp.Services[name+"@file"] = s
		tcp.Routers[name+"@file"] = &model.TCPRouter{Rule: fmt.Sprintf("HostSNI(`%s.gateway.test`)", name),
			Service: name + "@file", TLS: &model.TCPRouterTLS{}}
	}
	w.applyTCP(tcp, model.HTTP{})
	for _, name := range []string{"old", "new"} {
		for _, header := range []string{"", claim} {
			c, want := w.dial(), "127.0.0.1"
			if header != "" {
				want = "192.0.2.7"
			}
			_, _ = io.WriteString(c, header) // the handshake fails
			secure := tls.Client(c, &tls.Config{ServerName: name + ".gateway.test", InsecureSkipVerify: true})
			if got := line(secure); got != want {
				t.Errorf("%s: the server sees %q, want %s", name, got, want)
			}
		}
	}
}

// TestTLSToServers checks that servers with TLS are verified.
func TestTLSToServers(t *testing.T) {
	w := newWorld(t, model.Static{})
	trusted := certificate(t, "db.test")
	pair := keyPair(t, trusted)
	s := tcpServer(t, func(c net.Conn) {
		secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		greeting("secure")(secure)
	})
	s.LoadBalancer.Servers[0].TLS = true
	s.LoadBalancer.ServersTransport = "t@file"
	for _, c := range []struct {
		want string
		with model.ServerTLS
	}{
		{"secure", model.ServerTLS{ServerName: "db.test", RootCAs: []string{trusted.CertFile}}},
		{"secure", model.ServerTLS{InsecureSkipVerify: true}},
		{"no line", model.ServerTLS{ServerName: "other.test", RootCAs: []string{trusted.CertFile}}},
		{"no line", model.ServerTLS{ServerName: "db.test"}},
	} {
		w.applyTCP(model.TCP{Services: map[string]*model.TCPService{"s@file": s},
			Routers:           map[string]*model.TCPRouter{"s@file": {Rule: "HostSNI(`*`)", Service: "s@file"}},
			ServersTransports: map[string]*model.TCPServersTransport{"t@file": {TLS: &c.with}}}, model.HTTP{})
		if got := w.newLine(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.with, got, c.want)
		}
	}
}
