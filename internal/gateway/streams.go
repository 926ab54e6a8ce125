package gateway

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"fairlead/internal/gateway/datagram"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
)

// addStreams builds the TCP and UDP routers.
func (b *builder) addStreams() {
	b.streams, b.streamUse = stream.Build(stream.Source{Static: &b.static, Config: b.config, Status: b.status,
		Log: b.log, Options: b.tls.options.Configs, ServerTLS: tlsToServer, HTTPS: b.namesOfHTTPS,
		Weaker: b.weakerHTTPS}, b.Gateway.streams)
	b.datagrams, b.datagramUse = datagram.Build(&b.static, &b.config.UDP, b.status, b.Gateway.datagrams)
}

// receiving are the entry points that receive datagrams.
type receiving []*datagram.Entry

// receive begins to serve the entry points that receive datagrams.
func (g *Gateway) receive(sockets Sockets) (all receiving) {
	var own datagram.Own
	for _, s := range sockets {
		if s.UDP != nil {
			own = append(own, s.UDP.LocalAddr().(*net.UDPAddr).AddrPort())
		}
	}
	for _, value := range g.static.EntryPoints {
		c := sockets[value.Name].UDP
		if c == nil || !value.IsUDP() {
			continue
		}
		e := datagram.NewEntry(c, own, cmp.Or(value.UDPTimeout, 3*time.Second),
			func() *datagram.Route { return g.current.Load().datagrams[value.Name] },
			g.observer.Metrics.Connections.WithLabelValues(value.Name, "UDP"), g.open.add)
		all = append(all, e)
		e.Start(func(err error) {
			g.log.Error("cannot receive datagrams", "entry point", value.Name, "error", err)
		})
	}
	return all
}

// leave stops reading: another process receives the clients' datagrams.
func (r receiving) leave() {
	for _, e := range r {
		e.Leave()
	}
}

// close ends all sessions.
func (r receiving) close() {
	for _, e := range r {
		e.Close()
	}
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
	if have := b.tls.hosts.Of(entry, name); !b.tls.options.Meets(have, options) {
		return have
	}
	return ""
}

// tlsToServer returns the parameters of TLS to a TCP server.
func tlsToServer(t *gateway.ServerTLS) (*tls.Config, error) {
	return transport.TLS(&gateway.ServersTransport{ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify,
		RootCAs: t.RootCAs, Certificates: t.Certificates, PeerCertURI: t.PeerCertURI})
}
