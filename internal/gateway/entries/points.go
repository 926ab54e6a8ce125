// Package entries serves the entry points of a gateway: sockets → connections → requests.
//
// A connection goes from its socket (sockets.go) to the splitter, which reads its first bytes and gives it to the TCP
// routers, or to the server of HTTP/1.1 or HTTP/2. Datagrams go to UDP routers (datagrams.go) or to HTTP/3 (http3.go).
// A request goes to the handler of its entry point (handler.go), which finds its router in the snapshot that is in use.
// The package builds no object, and does not know the configuration beyond its entry points.
package entries

import (
	"cmp"
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1"
	"fairlead/internal/gateway/h3"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// MostHead is the size of the largest head of a request, in bytes.
const MostHead = 64 << 10

// listening is an entry point that accepts connections.
type listening struct {
	name   string
	accept *accepting
	http1  *h1.Server
	http2  *http.Server
	split  *splitter
	// http3 is nil if the entry point does not speak HTTP/3.
	http3 *h3.Server
	// streams are the connections of TCP routers.
	streams *stream.Entry
}

// Points serves the entry points of a gateway. Its methods may be called concurrently.
type Points struct {
	// Defaults are the time limits of entry points that set none.
	Defaults gateway.TimeLimits
	static   *gateway.Static
	log      *slog.Logger
	observer *observe.Observer
	current  *snapshot.Current
	tickets  *tlsconfig.Tickets
	// open has the connections of all entry points.
	open connections
	// left is closed by Leave, hurried by Hurry; terminating is true when the gateway is about
	// to end, last when each connection gets one more response.
	left, hurried     chan struct{}
	leave, hurry      sync.Once
	terminating, last atomic.Bool
}

// New returns the entry points, which serve nothing before Serve.
func New(static *gateway.Static, log *slog.Logger, o *observe.Observer, now *snapshot.Current,
	tickets *tlsconfig.Tickets) *Points {
	return &Points{Defaults: gateway.DefaultTimeLimits(), static: static, log: log, observer: o, current: now,
		tickets: tickets, left: make(chan struct{}), hurried: make(chan struct{})}
}

// count counts the open connections of HTTP/2.
func (p *Points) count(open prometheus.Gauge, c *admitted, state http.ConnState) {
	switch state {
	case http.StateNew:
		open.Inc()
	case http.StateClosed, http.StateHijacked:
		open.Dec()
		p.open.add(-1)
	}
	if state == http.StateClosed {
		c.place.Leave()
	}
}

// serverTLS returns the configuration of an entry point. The configurations of options have no tickets of their own.
func (p *Points) serverTLS(value gateway.EntryPoint) *tls.Config {
	config := p.current.ServerTLS(value)
	p.tickets.Use(config)
	return config
}

// newLimits returns the limits of an entry point's connections.
func (p *Points) newLimits(value gateway.EntryPoint, trusts func(netip.Addr) bool) *admission.Limits {
	return admission.New(admission.Settings{Log: p.log, Entry: value, Entries: len(p.static.EntryPoints),
		Trusts: trusts, Refused: p.observer.Metrics.Refused})
}

// http2Limits returns the limits of a connection of HTTP/2. Clients that ignore
// MaxConcurrentStreams, or reset streams to evade it, get GOAWAY when four times as many
// wait for their handlers to end (CVE-2023-44487, CVE-2025-8671).
func http2Limits(value gateway.EntryPoint) *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(value.MaxConcurrentStreams, 250),
		MaxReadFrameSize: 16 << 10, SendPingTimeout: time.Minute, WriteByteTimeout: time.Minute}
}

// headLimit returns the size of the largest head of a request: a user can lower it.
func headLimit(value gateway.EntryPoint) int {
	if value.MaxHeaderBytes == 0 {
		return MostHead
	}
	return min(value.MaxHeaderBytes, MostHead)
}

// panicked logs a mistake in the gateway's own code, which must not end the others'
// requests.
func (p *Points) panicked(r *http.Request, value any) {
	p.log.Error("a request failed by a mistake in the gateway", "path", r.RequestURI, "panic", value,
		"stack", string(debug.Stack()))
}

// grace returns the longest grace time of the entry points.
func (p *Points) grace() time.Duration {
	most := time.Duration(0)
	for _, e := range p.static.EntryPoints {
		most = max(most, e.Timeouts.Limits(p.Defaults).Grace)
	}
	return most
}

// stop lets the servers finish their requests, for as long as the grace time.
func stop(servers []*listening, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var all goroutine.Group
	for _, s := range servers {
		s.split.Close()
		all.Go("shut down HTTP/2", func() {
			if s.http2.Shutdown(ctx) != nil {
				s.http2.Close()
			}
		})
		all.Go("shut down HTTP/1.1", func() { _ = s.http1.Shutdown(ctx) }) // it closes what is left
		if s.http3 != nil {
			all.Go("shut down HTTP/3", func() { _ = s.http3.Shutdown(ctx) })
		}
		all.Go("end the connections of TCP routers", func() { s.streams.Shutdown(ctx) })
	}
	all.Wait()
}

// errorLog takes the messages of net/http: broken handshakes and the like, which any
// client can cause.
func (p *Points) errorLog() *log.Logger { return slog.NewLogLogger(p.log.Handler(), slog.LevelDebug) }
