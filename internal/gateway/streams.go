package gateway

import (
	"crypto/tls"

	"fairlead/internal/gateway/stream"
	"fairlead/internal/model/gateway"
)

// addStreams builds the TCP routers.
func (b *builder) addStreams() {
	b.streams, b.streamUse = stream.Build(stream.Source{Static: &b.static, Config: b.config, Status: objects{b.status},
		Log: b.log, Options: b.tls.options, ServerTLS: tlsToServer, HTTPS: b.namesOfHTTPS}, b.Gateway.streams)
}

// namesOfHTTPS calls add with the names of each router with TLS.
func (b *builder) namesOfHTTPS(add func(entry string, names []string)) {
	for _, r := range b.kept.routers {
		for _, use := range r.tls {
			add(use.entry, use.domains)
		}
	}
}

// tlsToServer returns the parameters of TLS to a TCP server.
func tlsToServer(t *gateway.ServerTLS) (*tls.Config, error) {
	return clientConfig(&gateway.ServersTransport{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify,
		RootCAs: t.RootCAs, Certificates: t.Certificates, PeerCertURI: t.PeerCertURI})
}

// objects gives the builders of TCP and UDP the statuses.
type objects struct{ *statuses }

// Disabled implements stream.Status.
func (o objects) Disabled(kind, name string) bool { return o.of(kind, name).State == Disabled }

// Disable implements stream.Status.
func (o objects) Disable(kind, name, reason string) { o.disable(kind, name, reason) }

// Warn implements stream.Status.
func (o objects) Warn(kind, name, reason string) { o.warn(kind, name, reason) }
