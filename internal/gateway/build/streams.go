package build

import (
	"crypto/tls"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
)

// addStreams builds the TCP and UDP routers.
func (b *builder) addStreams() {
	b.streams, b.streamUse = stream.Build(stream.Source{Static: b.Static, Config: b.config, Status: b.status,
		Log: b.Log, Options: b.tls.Options.Configs, ServerTLS: tlsToServer, HTTPS: b.namesOfHTTPS,
		Weaker: b.weakerHTTPS}, b.Objects.streams)
	b.datagrams, b.datagramUse = datagram.Build(b.Static, &b.config.UDP, b.status, b.Objects.datagrams)
}

// namesOfHTTPS calls add with the names of each router with TLS.
func (b *builder) namesOfHTTPS(add func(entry string, names []string)) {
	for _, r := range b.kept.routers {
		for _, use := range r.tls {
			add(use.Entry, use.Domains)
		}
	}
}

// weakerHTTPS returns the name of the options that HTTPS connections for the name have at the entry
// point, if they are not as strict as those of a TCP router, else an empty text.
func (b *builder) weakerHTTPS(entry, name, options string) string {
	if have := b.tls.Hosts.Of(entry, name); !b.tls.Options.Meets(have, options) {
		return have
	}
	return ""
}

// tlsToServer returns the parameters of TLS to a TCP server.
func tlsToServer(t *gateway.ServerTLS) (*tls.Config, error) {
	return transport.TLS(&gateway.ServersTransport{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify,
		RootCAs: t.RootCAs, Certificates: t.Certificates, PeerCertURI: t.PeerCertURI})
}
