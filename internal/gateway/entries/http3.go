package entries

import (
	"cmp"
	"net"
	"net/http"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/h3"
	"fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
)

// advertised returns the handler for connections of TCP. It announces HTTP/3 if the entry
// point has it.
func advertised(value gateway.EntryPoint, l *net.TCPListener, h http.Handler) http.Handler {
	if value.HTTP3 == nil {
		return h
	}
	port := l.Addr().(*net.TCPAddr).Port
	return h3.Advertise(cmp.Or(value.HTTP3.AdvertisedPort, port), h)
}

// listenHTTP3 begins to accept connections of HTTP/3.
func (p *Points) listenHTTP3(value gateway.EntryPoint, socket *net.UDPConn, h http.Handler,
	limits *admission.Limits) (*h3.Server, error) {
	open := p.observer.Metrics.Connections.WithLabelValues(value.Name, "UDP")
	times := value.Timeouts.Limits(p.Defaults)
	return h3.Listen(h3.Config{Socket: socket, TLS: p.serverTLS(value), Handler: h,
		MaxHeaderBytes: headLimit(value), MaxStreams: cmp.Or(value.MaxConcurrentStreams, 250),
		Idle: times.Idle, Read: times.Read, Write: times.Write,
		Enter: func(c *quic.Conn) (heard, leave func()) {
			at := limits.Enter(c, func() { h3.Refuse(c) })
			if at == nil {
				return nil, nil
			}
			open.Inc()
			return at.Heard, func() {
				open.Dec()
				at.Leave()
			}
		},
	})
}
