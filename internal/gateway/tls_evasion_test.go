package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	model "fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
)

// oneTicket is a client that offers its only session to all servers.
type oneTicket struct{ session *tls.ClientSessionState }

func (o *oneTicket) Get(string) (*tls.ClientSessionState, bool) { return o.session, o.session != nil }
func (o *oneTicket) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		o.session = s
	}
}

// TestSessionOfAnotherName checks that a client which resumes the session of a name with default options
// gets no connection that the options of another name refuse: a resumed handshake of TLS 1.3 has no certificate.
func TestSessionOfAnotherName(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		HTTP3: &model.HTTP3{}}}})
	text := tcpServer(t, greeting("tcp"))
	w.gateway.Apply(&model.Config{
		TLS: model.TLS{Certificates: []model.Certificate{certificate(t, "open.test", "tcp.open.test")},
			Options: map[string]*model.TLSOptions{"strict@file": {SNIStrict: true}}},
		TCP: model.TCP{Services: map[string]*model.TCPService{"tcp@file": text}, Routers: map[string]*model.TCPRouter{
			"open@file": {Rule: "HostSNI(`tcp.open.test`)", Service: "tcp@file", TLS: &model.TCPRouterTLS{}},
			"strict@file": {Rule: "HostSNI(`tcp.strict.test`)", Service: "tcp@file",
				TLS: &model.TCPRouterTLS{RouterTLS: model.RouterTLS{Options: "strict@file"}}}}},
		HTTP: model.HTTP{Services: map[string]*model.Service{"s@file": server(t, named("http"))},
			Routers: map[string]*model.Router{
				"open@file": {Rule: "Host(`open.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
				"strict@file": {Rule: "Host(`strict.test`)", Service: "s@file",
					TLS: &model.RouterTLS{Options: "strict@file"}}}},
	}, nil)
	for _, prefix := range []string{"", "tcp."} {
		for _, most := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			config := &tls.Config{ServerName: prefix + "open.test", MaxVersion: most, ClientSessionCache: &oneTicket{},
				InsecureSkipVerify: true}
			w.resumes(config)
			if !w.resumes(config) {
				t.Fatalf("%s, version %x: the session cannot be resumed", config.ServerName, most)
			}
			config.ServerName = prefix + "strict.test"
			if tls.Client(w.dial(), config).Handshake() == nil {
				t.Errorf("%s, version %x: the handshake succeeds without a certificate for the name", config.ServerName, most)
			}
		}
	}
	w.refusedByHTTP3("open.test", "strict.test")
}

// refusedByHTTP3 resumes a session of one name for this name, and then for another one, which must be refused.
func (w *world) refusedByHTTP3(of, name string) {
	w.t.Helper()
	config := &tls.Config{ServerName: of, ClientSessionCache: &oneTicket{}, InsecureSkipVerify: true,
		NextProtos: []string{"h3"}}
	for resumed := false; !resumed; {
		c, err := quic.DialAddr(w.t.Context(), w.address, config, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		_, _ = c.AcceptUniStream(w.t.Context()) // the server's first one, usually behind the ticket
		resumed = c.ConnectionState().TLS.DidResume
		_ = c.CloseWithError(0, "")
	}
	config.ServerName = name
	if c, err := quic.DialAddr(w.t.Context(), w.address, config, nil); err == nil {
		_ = c.CloseWithError(0, "")
		w.t.Errorf("HTTP/3, %s: the handshake succeeds without a certificate for the name", name)
	}
}

// TestOptionsOfOpenConnection checks that a connection which is open when its host gets stricter options does not
// reach the router with these options.
func TestOptionsOfOpenConnection(t *testing.T) {
	authority := certificate(t, "client.test")
	w := newWorld(t, model.Static{})
	service := server(t, named("http"))
	apply := func(options string) {
		w.gateway.Apply(&model.Config{
			TLS: model.TLS{Options: map[string]*model.TLSOptions{"mutual@file": {ClientAuth: model.ClientAuth{
				CAFiles: []string{authority.CertFile}, ClientAuthType: "RequireAndVerifyClientCert"}},
				"any@file":   {ClientAuth: model.ClientAuth{ClientAuthType: "RequireAnyClientCert"}},
				"suite@file": {CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}},
				"new@file":   {MinVersion: "VersionTLS13"}}},
			HTTP: model.HTTP{Services: map[string]*model.Service{"s@file": service},
				Routers: map[string]*model.Router{
					"s@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{Options: options}}}},
		}, nil)
	}
	for _, options := range []string{"mutual@file", "any@file", "new@file", "suite@file"} {
		apply("")
		c := tls.Client(w.dial(), &tls.Config{ServerName: "a.test", InsecureSkipVerify: true,
			MaxVersion:   tls.VersionTLS12,
			CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}})
		for _, want := range []int{http.StatusOK, http.StatusMisdirectedRequest} {
			if got := answered(t, c); got != want {
				t.Errorf("%s: status %d, want %d", options, got, want)
			}
			apply(options)
		}
	}
}

func answered(t *testing.T, c net.Conn) int {
	t.Helper()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n") // the next read fails
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}
