package gateway_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// tcpServer starts a server that serves each connection with the function, and returns a
// service with it.
func tcpServer(t *testing.T, serve func(c net.Conn)) *model.TCPService {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go place.Accept(l, func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(place.Timeout))
		serve(c)
	})
	return tcpServiceOf(l.Addr().String())
}

func tcpServiceOf(addresses ...string) *model.TCPService {
	lb := &model.TCPLoadBalancer{}
	for _, a := range addresses {
		lb.Servers = append(lb.Servers, model.TCPServer{Address: a})
	}
	return &model.TCPService{LoadBalancer: lb}
}

// greeting serves like SMTP or MySQL: the server speaks first, then it sends back what it
// receives.
func greeting(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text+"\n") // the client fails by what it reads
		_, _ = io.Copy(c, c)
	}
}

// secured serves with TLS and a certificate for the name.
func secured(t *testing.T, name string, serve func(net.Conn)) func(net.Conn) {
	t.Helper()
	pair := keyPair(t, certificate(t, name))
	return func(c net.Conn) {
		secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		if secure.Handshake() == nil {
			serve(secure)
			_ = secure.CloseWrite() // the client fails by what it reads
		}
	}
}

func keyPair(t *testing.T, c model.Certificate) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(c.CertFile), []byte(c.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// dial connects to the gateway.
func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	c := w.dialRefused()
	if c == nil {
		w.t.Fatal("the gateway resets the connection")
	}
	return c
}

// dialRefused connects to a gateway that may reset the connection at once. Linux reports a reset that arrives before
// the client has seen that it is connected as the error of connect; dialRefused returns nil then.
func (w *world) dialRefused() *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.address)
	if errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	return c.(*net.TCPConn)
}

// newLine returns the first line that a new connection gives, or "no line", also if the gateway resets it.
func (w *world) newLine() string {
	w.t.Helper()
	c := w.dialRefused()
	if c == nil {
		return "no line"
	}
	defer c.Close()
	return line(c)
}

// line returns the first line that a connection gives, or why there is none.
func line(c net.Conn) string {
	text, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "no line"
	}
	return strings.TrimSpace(text)
}

// secureLine connects to the gateway with TLS and returns the certificate's name and the
// first line.
func (w *world) secureLine(config *tls.Config) (name, text string) {
	w.t.Helper()
	config.InsecureSkipVerify = true
	opened := w.dialRefused()
	if opened == nil {
		return "no handshake", "the gateway resets the connection"
	}
	c := tls.Client(opened, config)
	if err := c.Handshake(); err != nil {
		return "no handshake", err.Error()
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+config.ServerName+"\r\n\r\n") // the next read fails
	return c.ConnectionState().PeerCertificates[0].DNSNames[0], line(c)
}

func (w *world) applyTCP(tcp model.TCP, http model.HTTP) map[string]status.Status {
	states := map[string]status.Status{}
	config := &model.Config{TCP: tcp, HTTP: http}
	config.TLS.Certificates = []model.Certificate{certificate(w.t, "*.gateway.test")}
	config.TLS.Options = map[string]*model.TLSOptions{"new@file": {MinVersion: "VersionTLS13"}}
	for _, s := range w.gateway.Apply(config, nil) {
		states[s.Name] = s
	}
	return states
}

func passthrough() *model.TCPRouterTLS { return &model.TCPRouterTLS{Passthrough: true} }

// TestServerFirst checks that the server of an entry point with TCP routers only may speak
// before the client, and that both ends of the stream are passed on.
func TestServerFirst(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.applyTCP(model.TCP{
		Routers:  map[string]*model.TCPRouter{"smtp@file": {Rule: "HostSNI(`*`)", Service: "smtp@file"}},
		Services: map[string]*model.TCPService{"smtp@file": tcpServer(t, greeting("220 mail.test"))}}, model.HTTP{})
	c := w.dial()
	if got := line(c); got != "220 mail.test" {
		t.Fatalf("got %q", got)
	}
	_, _ = io.WriteString(c, "QUIT") // the next read fails
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "QUIT" {
		t.Errorf("then %q, %v", b, err)
	}
}

// TestServerName checks who gets a client with TLS, in Traefik's order, and who has the
// certificate.
func TestServerName(t *testing.T) {
	w := newWorld(t, model.Static{})
	services := map[string]*model.TCPService{"plain@file": tcpServer(t, greeting("plain")),
		"one@file": tcpServer(t, secured(t, "one.test", greeting("one"))),
		"two@file": tcpServer(t, secured(t, "two.test", greeting("two"))),
		"all@file": tcpServer(t, secured(t, "all.test", greeting("all")))}
	routers := map[string]*model.TCPRouter{
		"one@file":  {Rule: "HostSNI(`one.test`)", Service: "one@file", TLS: passthrough()},
		"two@file":  {Rule: "HostSNIRegexp(`^two`)", Service: "two@file", TLS: passthrough()},
		"both@file": {Rule: "HostSNI(`both.test`)", Service: "one@file", TLS: passthrough()},
		"all@file":  {Rule: "HostSNI(`*`)", Service: "all@file", TLS: passthrough()},
		"ends@file": {Rule: "HostSNI(`db.gateway.test`)", Service: "plain@file", TLS: &model.TCPRouterTLS{}},
		"alpn@file": {Rule: "HostSNI(`one.test`) && ALPN(`two`)", Service: "two@file",
			TLS: passthrough(), Priority: 99},
		"new@file": {Rule: "HostSNI(`new.gateway.test`)", Service: "plain@file",
			TLS: &model.TCPRouterTLS{RouterTLS: model.RouterTLS{Options: "new@file"}}},
		"plain@file": {Rule: "HostSNI(`*`) && ClientIP(`192.0.2.1`)", Service: "plain@file"},
	}
	http := model.HTTP{Services: map[string]*model.Service{"s@file": server(t, named("HTTP"))},
		Routers: map[string]*model.Router{
			"both@file": {Rule: "Host(`both.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
			"wild@file": {Rule: "Host(`*.wild.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
			"web@file":  {Rule: "Path(`/`)", Service: "s@file"}}}
	const html = "fairlead.invalid"
	check := func(config *tls.Config, name, text string) {
		t.Helper()
		if gotName, got := w.secureLine(config); gotName != name || got != text {
			t.Errorf("%s %v: certificate %s, %q, want %s, %q", config.ServerName, config.NextProtos, gotName, got, name, text)
		}
	}
	w.applyTCP(model.TCP{Routers: routers, Services: services}, http)
	check(&tls.Config{ServerName: "one.test"}, "one.test", "one")
	check(&tls.Config{ServerName: "one.test", NextProtos: []string{"one", "two"}}, "two.test", "two")
	check(&tls.Config{ServerName: "two.test"}, "two.test", "two")
	check(&tls.Config{ServerName: "both.test"}, html, "HTTP/1.1 200 OK")
	check(&tls.Config{ServerName: "x.wild.test"}, html, "HTTP/1.1 200 OK")
	check(&tls.Config{ServerName: "other.test"}, "all.test", "all")
	check(&tls.Config{}, "all.test", "all")
	check(&tls.Config{ServerName: "db.gateway.test"}, "*.gateway.test", "plain")
	check(&tls.Config{ServerName: "db.gateway.test", NextProtos: []string{"postgresql"}}, "*.gateway.test", "plain")
	check(&tls.Config{ServerName: "new.gateway.test"}, "*.gateway.test", "plain")
	old := &tls.Config{ServerName: "new.gateway.test", MaxVersion: tls.VersionTLS12}
	if name, _ := w.secureLine(old); name != "no handshake" {
		t.Errorf("the TLS options of the router have no effect: certificate %s", name)
	}
	if status, body := w.get("http://web.test/"); status != 200 || body != "HTTP" {
		t.Errorf("HTTP on the same entry point: %d %q", status, body)
	}
	http.Routers = maps.Clone(http.Routers)
	http.Routers["every@file"] = &model.Router{Rule: "Path(`/`)", Service: "s@file", TLS: &model.RouterTLS{}}
	w.applyTCP(model.TCP{Routers: routers, Services: services}, http)
	check(&tls.Config{ServerName: "one.test"}, "one.test", "one")
	check(&tls.Config{ServerName: "other.test"}, html, "HTTP/1.1 200 OK")
}

// TestTCPStates checks that faulty objects are left out alone, with the reason.
func TestTCPStates(t *testing.T) {
	w := newWorld(t, model.Static{})
	states := w.applyTCP(model.TCP{
		Routers: map[string]*model.TCPRouter{
			"good@file":   {Rule: "HostSNI(`*`)", Service: "good@file", Middlewares: []string{"few@file"}},
			"named@file":  {Rule: "HostSNI(`a.test`)", Service: "good@file"},
			"faulty@file": {Rule: "HostSNI(`a.test`", Service: "good@file"},
			"lost@file":   {Rule: "HostSNI(`*`)", Service: "god@file"},
			"entry@file":  {Rule: "HostSNI(`*`)", Service: "good@file", EntryPoints: []string{"wbe"}},
			"empty@file":  {Rule: "HostSNI(`*`)", Service: "good@file", Middlewares: []string{"empty@file"}},
			"opts@file": {Rule: "HostSNI(`b.test`)", Service: "good@file",
				TLS: &model.TCPRouterTLS{RouterTLS: model.RouterTLS{Options: "x@file"}}},
		},
		Middlewares: map[string]*model.TCPMiddleware{"few@file": {InFlightConn: &model.InFlightConn{Amount: 2}},
			"empty@file": {IPAllowList: &model.TCPIPAllowList{}}},
		Services: map[string]*model.TCPService{"good@file": tcpServiceOf("127.0.0.1:1"),
			"port@file":    tcpServiceOf("127.0.0.1"),
			"loop@file":    {Weighted: &model.TCPWeighted{Services: []model.WeightedService{{Name: "loop@file"}}}},
			"version@file": {LoadBalancer: &model.TCPLoadBalancer{ProxyProtocol: &model.ProxyProtocol{Version: 3}}}},
	}, model.HTTP{})
	for name, want := range map[string]string{"good@file": "", "few@file": "", "named@file": "HostSNI needs tls",
		"faulty@file": "column", "lost@file": "do you mean good@file?", "entry@file": "entry point wbe does not exist",
		"empty@file": "sourceRange is empty", "opts@file": "x@file cannot be used", "port@file": "want HOST:PORT",
		"loop@file": "disabled", "version@file": "want 1 or 2"} {
		s := states[name]
		if got := string(s.State) + " " + strings.Join(s.Reasons, "; "); !strings.Contains(got, want) ||
			(want == "") != (s.State == status.Enabled) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestChangesKeepConnections checks that a connection survives the removal of its router and
// server, and that the limit of connections counts it still.
func TestChangesKeepConnections(t *testing.T) {
	w := newWorld(t, model.Static{})
	tcp := model.TCP{Routers: map[string]*model.TCPRouter{"a@file": {Rule: "HostSNI(`*`)", Service: "a@file",
		Middlewares: []string{"one@file"}}},
		Services:    map[string]*model.TCPService{"a@file": tcpServer(t, greeting("a"))},
		Middlewares: map[string]*model.TCPMiddleware{"one@file": {InFlightConn: &model.InFlightConn{Amount: 1}}}}
	w.applyTCP(tcp, model.HTTP{})
	c := w.dial()
	if got := line(c); got != "a" {
		t.Fatalf("got %q", got)
	}
	tcp.Services = map[string]*model.TCPService{"a@file": tcpServer(t, greeting("b"))}
	w.applyTCP(tcp, model.HTTP{})
	if got := w.newLine(); got != "no line" {
		t.Errorf("a second connection after a change gets %q", got)
	}
	w.applyTCP(model.TCP{}, model.HTTP{})
	_, _ = io.WriteString(c, "still there\n") // the next read fails
	if got := line(c); got != "still there" {
		t.Errorf("after the removal: %q", got)
	}
}

// TestHostileOpenings checks that clients that are slow or send nonsense lose their
// connections, and do not disturb others.
func TestHostileOpenings(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		Timeouts: model.Timeouts{Read: new(50 * time.Millisecond)}}}})
	w.applyTCP(model.TCP{Routers: map[string]*model.TCPRouter{
		"a@file": {Rule: "HostSNI(`*`)", Service: "a@file", TLS: passthrough()}},
		Services: map[string]*model.TCPService{"a@file": tcpServer(t, secured(t, "a.test", greeting("a")))},
	}, model.HTTP{})
	for _, sent := range []string{"", "\x16\x03\x01", "\x00\x00\x00\x08", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"\x00\x00\x00\x08\x04\xd2\x16\x2f\x16", "\x16\x03\x01\x40\x00\x01\xff\xff\xff" + strings.Repeat("x", 1<<15)} {
		c := w.dialRefused()
		if c == nil {
			continue // the read timeout ended before the client was connected
		}
		_, _ = io.WriteString(c, sent)   // the gateway may have closed
		_, err := io.Copy(io.Discard, c) // an alert, or PostgreSQL's S
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("%.20q: the connection stays open", sent)
		}
	}
	// A client without CPU time is slow, too.
	eventually(t, "a client after them", func() error {
		if name, text := w.secureLine(&tls.Config{ServerName: "a.test"}); name != "a.test" || text != "a" {
			return fmt.Errorf("it gets %s %q", name, text)
		}
		return nil
	})
}

// TestStopEndsConnections checks that the clients of a stopping gateway do not take its end for
// that of their stream.
func TestStopEndsConnections(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		Timeouts: model.Timeouts{Grace: new(time.Duration)}}}})
	w.applyTCP(model.TCP{Routers: map[string]*model.TCPRouter{"a@file": {Rule: "HostSNI(`*`)", Service: "a@file"}},
		Services: map[string]*model.TCPService{"a@file": tcpServer(t, greeting("a"))}}, model.HTTP{})
	c := w.dial()
	if got := line(c); got != "a" {
		t.Fatalf("got %q", got)
	}
	w.stop()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection ends as if its server had ended it")
	}
}
