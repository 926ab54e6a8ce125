package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"fairlead/internal/gateway/opening"
	model "fairlead/internal/model/gateway"
)

// startup is a StartupMessage of PostgreSQL's protocol 3.0 for user a.
var startup = append([]byte{0, 0, 0, 16, 0, 3, 0, 0}, "user\x00a\x00\x00"...)

// authenticationOk is a server's answer that asks for no password.
var authenticationOk = []byte{'R', 0, 0, 0, 8, 0, 0, 0, 0}

// postgres serves like a server of PostgreSQL: with TLS if the client asks for it and there is
// a certificate. It answers a startup message.
func postgres(t *testing.T, name string) func(net.Conn) {
	t.Helper()
	config := &tls.Config{}
	if name != "" {
		config.Certificates = []tls.Certificate{keyPair(t, certificate(t, name))}
	}
	return func(c net.Conn) {
		for {
			head := make([]byte, 8)
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			switch {
			case !bytes.Equal(head, opening.SSLRequest()):
				rest := make([]byte, binary.BigEndian.Uint32(head)-8)
				_, _ = io.ReadFull(c, rest)
				if bytes.Equal(append(head, rest...), startup) {
					_, _ = c.Write(authenticationOk) // the client fails by what it reads
				}
				return
			case name == "":
				_, _ = c.Write([]byte{'N'})
			default:
				_, _ = c.Write([]byte{'S'})
				c = tls.Server(c, config)
			}
		}
	}
}

// psql connects as libpq does: it asks for GSSAPI encryption first if gss is set, and for TLS
// if config is not nil. It returns the name of the server's certificate.
func psql(w *world, gss bool, config *tls.Config) string {
	var c net.Conn = w.dial()
	ask := func(request []byte) byte {
		answer := make([]byte, 1)
		_, _ = c.Write(request) // the read fails
		if _, err := io.ReadFull(c, answer); err != nil {
			return 0
		}
		return answer[0]
	}
	if gss {
		if got := ask([]byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30}); got != 'N' {
			return "GSSAPI: " + string(got)
		}
	}
	name := "no TLS"
	if config != nil {
		if got := ask(opening.SSLRequest()); got == 'S' {
			secure := tls.Client(c, config)
			if err := secure.Handshake(); err != nil {
				return err.Error()
			}
			c, name = secure, secure.ConnectionState().PeerCertificates[0].DNSNames[0]
		} else if got != 'N' {
			return "refused"
		}
	}
	_, _ = c.Write(startup) // the read fails
	if b, err := io.ReadAll(io.LimitReader(c, 9)); err != nil || !bytes.Equal(b, authenticationOk) {
		return "no answer"
	}
	return name
}

// TestPostgreSQL checks routers by server name for clients that ask for TLS before the
// handshake, and that others are left to a router without TLS.
func TestPostgreSQL(t *testing.T) {
	w := newWorld(t, model.Static{})
	services := map[string]*model.TCPService{"own@file": tcpServer(t, postgres(t, "own.test")),
		"plain@file": tcpServer(t, postgres(t, ""))}
	routers := map[string]*model.TCPRouter{
		"plain@file": {Rule: "HostSNI(`*`)", Service: "plain@file"},
		"own@file":   {Rule: "HostSNI(`own.test`)", Service: "own@file", TLS: passthrough()},
		"not@file":   {Rule: "HostSNI(`not.test`)", Service: "plain@file", TLS: passthrough()},
		"ends@file":  {Rule: "HostSNI(`db.gateway.test`)", Service: "plain@file", TLS: &model.TCPRouterTLS{}},
	}
	w.applyTCP(model.TCP{Routers: routers, Services: services}, model.HTTP{})
	named := func(name string, protocols ...string) *tls.Config {
		return &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols}
	}
	for _, s := range []struct {
		gss    bool
		config *tls.Config
		want   string
	}{
		{false, named("own.test"), "own.test"}, {true, named("own.test", "postgresql"), "own.test"},
		{false, named("db.gateway.test"), "*.gateway.test"},
		{true, named("db.gateway.test", "postgresql"), "*.gateway.test"}, {false, nil, "no TLS"},
		{false, named("not.test"), "EOF"}, {false, named("other.test"), "EOF"},
	} {
		got := psql(w, s.gss, s.config)
		if refused := got != "no TLS" && got != "own.test"; got != s.want && !(s.want == "EOF" && refused) {
			t.Errorf("%+v: %s, want %s", s.config, got, s.want)
		}
	}
	w.applyTCP(model.TCP{Routers: map[string]*model.TCPRouter{"plain@file": routers["plain@file"]}, Services: services},
		model.HTTP{})
	if got := psql(w, false, named("own.test")); got != "no TLS" {
		t.Errorf("without routers with TLS: %s, want the server's own answer", got)
	}
}
