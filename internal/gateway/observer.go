package gateway

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/model/gateway"
)

// observer counts and logs requests.
type observer struct {
	log     *accesslog.Log
	metrics *metric.Metrics
	number  atomic.Uint64
}

func newObserver(static gateway.Static) (*observer, error) {
	o := &observer{metrics: metric.New(static.Metrics)}
	if static.AccessLog != nil {
		var err error
		if o.log, err = accesslog.New(*static.AccessLog); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// observed says what is recorded of the requests of an entry point.
type observed struct {
	name string
	// source has the counters of requests without a router. If nil, they are not counted.
	source *metric.Source
	// unlogged leaves requests without a router out of the access log.
	unlogged   bool
	inProgress *metric.Open
}

func (o *observer) entry(value gateway.EntryPoint) observed {
	logged, counted := recorded(value.Observability)
	e := observed{name: value.Name, unlogged: !logged, inProgress: o.metrics.OpenAtEntry(value.Name)}
	if counted {
		e.source = o.metrics.NewSource(value.Name, "", "")
	}
	return e
}

// begin notes what the end of the request does not show any more.
func (o *observer) begin(x *exchange, r *http.Request) {
	x.body = r.Body
	if o.metrics.Enabled {
		x.kind = metric.KindOf(r)
	}
	if o.log != nil {
		x.hasOrigin, x.hasHeaders = o.log.WritesOrigin()
	}
}

// record counts and logs a request that has ended.
func (o *observer) record(e *observed, x *exchange, r *http.Request) {
	source, logged := e.source, o.log != nil && !e.unlogged
	if x.router != nil {
		source, logged = x.router.Source, o.log != nil && !x.router.Unlogged
	}
	if source == nil && !logged {
		return
	}
	took := time.Since(x.started)
	if x.status == 0 {
		x.status = http.StatusOK
	}
	number := o.number.Add(1)
	if source != nil {
		o.metrics.Count(source, &metric.Request{Kind: x.kind, Status: x.status, TLS: r.TLS, Service: x.service,
			Took: took, ServiceTook: x.took, Received: x.received(), Sent: x.written, Retries: x.attempts - 1})
	}
	if logged {
		l := accesslog.Request{Request: r, Entry: e.name, Number: number, Began: x.started, Took: took,
			Target: x.target, Received: x.received(), Sent: x.written, Status: x.status, Answer: x.Header(),
			Attempts: x.attempts, Service: x.service, ServerTook: x.took, Origin: x.answer()}
		if x.router != nil {
			l.Router = x.router.Name
		}
		if x.server != nil {
			l.Server = x.server.url
		}
		o.log.Write(&l)
	}
}

// OpenLog opens the file of an access log for LogTo.
func OpenLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	return f, nil
}

// LogTo writes the access log to the file from now on, and closes the file before. Without
// it, the log goes to the standard output: the gateway opens no file itself, so that it
// needs no right to.
func (g *Gateway) LogTo(file *os.File) {
	if g.observer.log == nil {
		_ = file.Close() // nothing was written
		return
	}
	g.observer.log.To(file)
}

// connections returns a function that counts the open connections of the entry point.
// It takes those that have ended off all.
func (o *observer) connections(entry string, all *connections) func(net.Conn, http.ConnState) {
	open := o.metrics.Connections.WithLabelValues(entry, "TCP")
	return func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Inc()
		case http.StateClosed, http.StateHijacked:
			open.Dec()
			all.add(-1)
		}
	}
}

// configure removes the metrics of what the configuration lacks. It is called before requests use
// the configuration.
func (o *observer) configure(b *builder) {
	o.metrics.Configure(b.config, namesOfKind(b.changed, "router"), namesOfKind(b.changed, "service"))
}

// configured counts a new configuration.
func (o *observer) configured(s *snapshot) {
	o.metrics.Configured(slices.Collect(maps.Values(s.tls.certificates)))
}
