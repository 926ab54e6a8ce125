package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// optionsCase is one option, and how a client meets it or falls short.
type optionsCase struct {
	name    string
	options model.TLSOptions
	// weak changes a client so that the options must refuse it. If nil, the options refuse all clients whose name no
	// certificate has.
	weak func(*tls.Config)
	// anywhere says that a client of HTTP/3 can fall short too: QUIC has TLS 1.3 and a protocol of its own.
	anywhere bool
}

// optionsCases returns the options, and a certificate for clients that they accept.
func optionsCases(t *testing.T) ([]optionsCase, tls.Certificate) {
	own := certificate(t, "client.test")
	pair := keyPair(t, own)
	block, _ := pem.Decode([]byte(own.CertFile))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pair.Leaf = leaf
	return []optionsCase{
		{"clientAuth", model.TLSOptions{ClientAuth: model.ClientAuth{CAFiles: []string{own.CertFile},
			ClientAuthType: "RequireAnyClientCert"}}, func(c *tls.Config) { c.Certificates = nil }, true},
		{"minVersion", model.TLSOptions{MinVersion: "VersionTLS13"},
			func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, false},
		{"cipherSuites", model.TLSOptions{MaxVersion: "VersionTLS12",
			CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}},
			func(c *tls.Config) {
				c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
			}, false},
		{"sniStrict", model.TLSOptions{SNIStrict: true}, nil, true},
		{"alpnProtocols", model.TLSOptions{ALPNProtocols: []string{"http/1.1"}},
			func(c *tls.Config) { c.NextProtos = []string{"h2"} }, false},
	}, pair
}

// hostCase is the rule of a router with options, and a request for it.
type hostCase struct {
	rule, tcp string
	// name is the server name that the client sends, host its Host field.
	name, host string
	// want is the answer to a client that meets the options, tcpWant that of a TCP router if it differs.
	want, tcpWant string
}

const (
	refused = "no handshake"
	lost    = "421"
	unknown = "404"
	strict  = "strict"
)

var hostCases = map[string]hostCase{
	"exact": {"Host(`a.test`)", "HostSNI(`a.test`)", "a.test", "a.test", strict, strict},
	"wildcard": {"Host(`*.wild.test`)", "HostSNI(`*.wild.test`)", "x.wild.test", "x.wild.test", strict,
		strict},
	"wildcard, two levels": {"Host(`*.b.test`)", "HostSNI(`*.b.test`)", "x.y.b.test", "x.y.b.test", unknown, unknown},
	"wildcard of two levels": {"Host(`*.y.b.test`)", "HostSNI(`*.y.b.test`)", "x.y.b.test", "x.y.b.test", strict,
		strict},
	"all hosts": {"Host(`*`)", "HostSNI(`*`)", "any.test", "any.test", strict, strict},
	"one of several": {"Host(`o.test`) || Host(`*.o.test`) && Path(`/`)",
		"HostSNI(`o.test`) || HostSNI(`*.o.test`)", "x.o.test", "x.o.test", strict, strict},
	"regular expression": {"HostRegexp(`^r[.]test$`)", "HostSNIRegexp(`^r[.]test$`)", "r.test", "r.test", unknown,
		strict},
	"no host":      {"PathPrefix(`/`)", "HostSNI(`*`)", "n.test", "n.test", unknown, strict},
	"host or path": {"Host(`q.test`) || Path(`/`)", "HostSNI(`*`)", "p.test", "p.test", unknown, strict},
	"not a host":   {"!Host(`q.test`)", "!HostSNI(`q.test`)", "p.test", "p.test", unknown, strict},
	"IPv4":         {"Host(`192.0.2.1`)", "HostSNI(`*`)", "", "192.0.2.1", unknown, strict},
	"IPv6":         {"Host(`2001:db8::1`)", "HostSNI(`*`)", "", "[2001:DB8:0::1]", unknown, strict},
	"address among names": {"Host(`a.test`) || Host(`192.0.2.1`)", "HostSNI(`*`)", "", "192.0.2.1", lost,
		strict},
	"upper case": {"Host(`UP.Test`)", "HostSNI(`UP.Test`)", "uP.TEST", "Up.tesT:443", strict, strict},
	"upper case, wildcard": {"Host(`*.UP.Test`)", "HostSNI(`*.UP.Test`)", "X.uP.TEST", "x.Up.tesT", strict,
		strict},
	"trailing dot": {"Host(`*.dot.test.`)", "HostSNI(`*.dot.test.`)", "x.dot.test", "x.dot.test.", strict, strict},
	"international": {"Host(`*.xn--bcher-kva.test`)", "HostSNI(`*.xn--bcher-kva.test`)", "x.XN--BCHER-KVA.test",
		"x.xn--bcher-kva.test", strict, strict},
	"no server name":           {"Host(`a.test`)", "HostSNI(`a.test`)", "", "a.test", lost, unknown},
	"no server name, wildcard": {"Host(`*.wild.test`)", "HostSNI(`*.wild.test`)", "", "x.wild.test", lost, unknown},
	"another server name":      {"Host(`a.test`)", "HostSNI(`a.test`)", "open.test", "a.test", lost, "open"},
	"another name for wildcards": {"Host(`*.wild.test`)", "HostSNI(`*.wild.test`)", "open.test",
		"x.wild.test", lost, "open"},
	"another name for all": {"Host(`*`)", "HostSNI(`*`)", "open.test", "any.test", lost, "open"},
}

// TestOptionsOfHosts checks for each option, host and protocol that a client which the options refuse never reaches
// the server of a router with these options.
func TestOptionsOfHosts(t *testing.T) {
	options, pair := optionsCases(t)
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		HTTP3: &model.HTTP3{}}}})
	for name, at := range hostCases {
		for _, o := range options {
			for _, protocol := range []string{"h1", "h2", "h3", "tcp"} {
				s := optionsWorld{w, o, at, protocol, pair}
				t.Run(fmt.Sprintf("%s/%s/%s", name, o.name, protocol), s.test)
			}
		}
	}
}

// optionsWorld is one cell of the table.
type optionsWorld struct {
	*world
	option   optionsCase
	at       hostCase
	protocol string
	pair     tls.Certificate
}

func (s optionsWorld) test(t *testing.T) {
	want := s.at.want
	if s.protocol == "tcp" {
		want = s.at.tcpWant
	}
	good := &tls.Config{InsecureSkipVerify: true, ServerName: s.at.name, Certificates: []tls.Certificate{s.pair}}
	s.configure(t, s.at.name, "*.wild.test", "open.test")
	if got := s.ask(t, good.Clone()); got != s.reachable(want) {
		t.Errorf("a client that meets the options gets %s, want %s", got, s.reachable(want))
	}
	if s.protocol == "h3" && !s.option.anywhere {
		return
	}
	if want == strict {
		want = refused
	}
	if s.option.weak == nil {
		s.configure(t, "open.test")
	} else {
		s.option.weak(good)
	}
	if got := s.ask(t, good); got == strict || got != want && got != refused {
		t.Errorf("a client that does not meet the options gets %s, want %s", got, want)
	}
}

// reachable returns the answer to a client of the protocol that does all for the options.
func (s optionsWorld) reachable(want string) string {
	switch {
	case s.option.name == "alpnProtocols" && s.protocol == "h2" && want == strict,
		s.option.name == "sniStrict" && s.at.name == "" && want == strict,
		s.option.name == "cipherSuites" && s.protocol == "h3" && want == strict:
		return refused // HTTP/2 is not among the protocols, a client without a name names none, QUIC has TLS 1.3 only
	}
	return want
}

// configure applies the router of the cell, one for open.test with default options, and certificates.
func (s optionsWorld) configure(t *testing.T, names ...string) {
	t.Helper()
	config := &model.Config{TLS: model.TLS{Options: map[string]*model.TLSOptions{"strict@file": &s.option.options}}}
	for _, name := range names {
		if name != "" {
			config.TLS.Certificates = append(config.TLS.Certificates, certificate(t, name))
		}
	}
	if s.protocol == "tcp" {
		config.TCP = model.TCP{Routers: map[string]*model.TCPRouter{
			"strict@file": {Rule: s.at.tcp, Service: "strict@file", TLS: &model.TCPRouterTLS{
				RouterTLS: model.RouterTLS{Options: "strict@file"}}},
			"open@file": {Rule: "HostSNI(`open.test`)", Service: "open@file", Priority: 1000,
				TLS: &model.TCPRouterTLS{}}},
			Services: map[string]*model.TCPService{"strict@file": tcpServer(t, greeting(strict)),
				"open@file": tcpServer(t, greeting("open"))}}
	} else {
		config.HTTP = model.HTTP{Routers: map[string]*model.Router{
			"strict@file": {Rule: s.at.rule, Service: "strict@file", TLS: &model.RouterTLS{Options: "strict@file"}},
			"open@file":   {Rule: "Host(`open.test`)", Service: "open@file", TLS: &model.RouterTLS{}}},
			Services: map[string]*model.Service{"strict@file": server(t, named(strict)),
				"open@file": server(t, named("open"))}}
	}
	s.gateway.Apply(config, nil)
}

// ask returns what the client gets: a text of a server, the status of another answer, or refused.
func (s optionsWorld) ask(t *testing.T, config *tls.Config) string {
	t.Helper()
	if s.protocol == "tcp" {
		return s.askTCP(config)
	}
	if config.ServerName == "" {
		config.ServerName = "127.0.0.1" // clients send no address
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = s.at.host
	answer, err := s.transport(t, config).RoundTrip(r)
	if err != nil {
		return refused
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body) // a text that is cut differs
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.StatusCode)
	}
	return string(body)
}

// askTCP returns the first word of what the client gets from a server of TCP, or unknown if HTTPS routers take it.
func (s optionsWorld) askTCP(config *tls.Config) string {
	c := tls.Client(s.dial(), config)
	if c.Handshake() != nil {
		return refused
	}
	begin := "GET / HTTP/1.0\r\n\r\n"
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		begin = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	}
	_, _ = io.WriteString(c, begin) // the next read fails
	text := make([]byte, 6)
	n, err := c.Read(text)
	switch word, _, _ := strings.Cut(string(text[:n]), "\n"); {
	case word == strict || word == "open":
		return word
	case err == nil:
		return unknown
	}
	return refused
}

// transport returns a client of the cell's protocol.
func (s optionsWorld) transport(t *testing.T, config *tls.Config) http.RoundTripper {
	t.Helper()
	if s.protocol == "h3" {
		config.NextProtos = nil
		three := &http3.Transport{TLSClientConfig: config, Dial: func(ctx context.Context, _ string, c *tls.Config,
			q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, s.address, c, q)
		}}
		t.Cleanup(func() { _ = three.Close() })
		return three
	}
	if config.NextProtos == nil {
		config.NextProtos = map[string][]string{"h1": {"http/1.1"}, "h2": {"h2"}}[s.protocol]
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(s.protocol == "h1")
	protocols.SetHTTP2(s.protocol == "h2")
	one := &http.Transport{Protocols: protocols, TLSClientConfig: config}
	t.Cleanup(one.CloseIdleConnections)
	return one
}
