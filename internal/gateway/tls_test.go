package gateway_test

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"testing"

	"fairlead/internal/gateway/status"
	lab "fairlead/internal/lab/certificate"
	model "fairlead/internal/model/gateway"
)

// certificate returns a certificate for the names, as PEM texts.
func certificate(t *testing.T, name string, others ...string) model.Certificate {
	t.Helper()
	pair, err := lab.New(name, others...)
	if err != nil {
		t.Fatal(err)
	}
	return model.Certificate{CertFile: string(pair.Chain), KeyFile: string(pair.Key)}
}

// TestCertificates checks which certificate and protocol a client gets.
func TestCertificates(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.gateway.Apply(&model.Config{
		TLS: model.TLS{Certificates: []model.Certificate{certificate(t, "a.test"), certificate(t, "*.wild.test")},
			Options: map[string]*model.TLSOptions{"strict@file": {SNIStrict: true},
				"new@file": {MinVersion: "VersionTLS13"}}},
		HTTP: model.HTTP{Routers: map[string]*model.Router{
			"a@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
			"strict@file": {Rule: "Host(`strict.test`)", Service: "s@file",
				TLS: &model.RouterTLS{Options: "strict@file"}},
			"new@file": {Rule: "Host(`x.wild.test`)", Service: "s@file", TLS: &model.RouterTLS{Options: "new@file"}},
		}, Services: map[string]*model.Service{"s@file": server(t, named("secure"))}},
	}, nil)
	for _, s := range []struct {
		name string
		want string
		most uint16
	}{
		{"a.test", "a.test", 0}, {"x.wild.test", "*.wild.test", 0}, {"other.test", "fairlead.invalid", 0},
		{"strict.test", "", 0}, {"x.wild.test", "", tls.VersionTLS12},
	} {
		c, err := tls.Dial("tcp", w.address, &tls.Config{ServerName: s.name, InsecureSkipVerify: true,
			MaxVersion: s.most,
			NextProtos: []string{"h2"}})
		if (err == nil) != (s.want != "") {
			t.Errorf("%s up to version %x: error %v", s.name, s.most, err)
		}
		if err != nil {
			continue
		}
		state := c.ConnectionState()
		if got := state.PeerCertificates[0].DNSNames[0]; got != s.want || state.NegotiatedProtocol != "h2" {
			t.Errorf("%s: certificate for %s, protocol %q, want %s and h2", s.name, got, state.NegotiatedProtocol,
				s.want)
		}
		c.Close()
	}
}

// TestUnusableDefaultOptions: if the options that demand certificates of clients cannot be used,
// clients must not get in without.
func TestUnusableDefaultOptions(t *testing.T) {
	w := newWorld(t, model.Static{})
	config := func(authorities ...string) *model.Config {
		return &model.Config{TLS: model.TLS{Options: map[string]*model.TLSOptions{"default": {
			ClientAuth: model.ClientAuth{CAFiles: authorities, ClientAuthType: "RequireAndVerifyClientCert"}}}}}
	}
	handshake := func() error {
		c, err := tls.Dial("tcp", w.address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		if err == nil {
			c.Close()
		}
		return err
	}
	w.gateway.Apply(&model.Config{}, nil)
	if err := handshake(); err != nil {
		t.Fatal(err)
	}
	unread := status.Status{Kind: "tls options", Name: "default", State: status.Disabled, Reasons: []string{"unread"}}
	for name, known := range map[string][]status.Status{"faulty": nil, "not read": {unread}} {
		w.gateway.Apply(config("-----BEGIN nothing"), known)
		if err := handshake(); err == nil {
			t.Errorf("%s authorities: a client without a certificate gets in", name)
		}
	}
	w.gateway.Apply(&model.Config{}, nil)
	if err := handshake(); err != nil {
		t.Error(err)
	}
	unread.Name = "default@file"
	w.gateway.Apply(&model.Config{}, []status.Status{unread})
	if err := handshake(); err == nil {
		t.Error("options that a front end has left out: a client without a certificate gets in")
	}
}

// TestKindsOfConnections checks that routers with TLS take only connections with TLS,
// that HTTP/2 works with and without TLS, and that a client cannot evade a host's TLS
// options on a connection for another name.
func TestKindsOfConnections(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.gateway.Apply(&model.Config{
		TLS: model.TLS{Options: map[string]*model.TLSOptions{"new@file": {MinVersion: "VersionTLS13"}}},
		HTTP: model.HTTP{Routers: map[string]*model.Router{
			"plain@file":  {Rule: "Host(`a.test`)", Service: "plain@file"},
			"secure@file": {Rule: "Host(`a.test`)", Service: "secure@file", TLS: &model.RouterTLS{}},
			"strict@file": {Rule: "Host(`strict.test`)", Service: "secure@file",
				TLS: &model.RouterTLS{Options: "new@file"}},
		}, Services: map[string]*model.Service{"plain@file": server(t, named("plain")),
			"secure@file": server(t, named("secure"))}},
	}, nil)
	at := w.client.Transport.(*http.Transport)
	for _, s := range []struct {
		url, name, host string
		http2           bool
		status          int
		want            string
	}{
		{"http://a.test/", "", "", false, 200, "plain"},
		{"http://a.test/", "", "", true, 200, "plain"},
		{"https://a.test/", "a.test", "", false, 200, "secure"},
		{"https://a.test/", "a.test", "", true, 200, "secure"},
		{"https://a.test/", "a.test", "strict.test", true, http.StatusMisdirectedRequest, "Misdirected Request\n"},
	} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!s.http2)
		protocols.SetHTTP2(s.http2)
		protocols.SetUnencryptedHTTP2(s.http2)
		client := &http.Client{Transport: &http.Transport{DialContext: at.DialContext, Protocols: protocols,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: s.name}}}
		r, err := http.NewRequest(http.MethodGet, s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = s.host
		answer, err := client.Do(r)
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(answer.Body)
		answer.Body.Close()
		client.CloseIdleConnections()
		if answer.StatusCode != s.status || body.String() != s.want || (answer.ProtoMajor == 2) != s.http2 {
			t.Errorf("%+v: %d %q %s", s, answer.StatusCode, body.String(), answer.Proto)
		}
	}
}
