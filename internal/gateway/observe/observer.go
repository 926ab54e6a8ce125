// Package observe records requests: it counts them for the metrics, and writes the access log.
//
// It does not answer requests. An Exchange begins and ends at an entry point; on the way, load balancers note which
// server has got the request. Data flows from there to packages metric and accesslog, which know no exchange.
package observe

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/route"
	"fairlead/internal/model/gateway"
)

// Observer counts and logs requests.
type Observer struct {
	Metrics *metric.Metrics
	// log is nil if the gateway writes no access log.
	log *accesslog.Log
	// internals: requests to the gateway's own services are logged.
	internals bool
	number    atomic.Uint64
}

// New returns an observer with the settings of a gateway.
func New(static *gateway.Static) (*Observer, error) {
	o := &Observer{Metrics: metric.New(static.Metrics, static.API != nil && static.API.Dashboard)}
	if static.AccessLog != nil {
		o.internals = static.AccessLog.AddInternals
		var err error
		if o.log, err = accesslog.New(*static.AccessLog); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// LogTo writes the access log to the file from now on, and closes the file before. Without
// it, the log goes to the standard output: the gateway opens no file itself, so that it
// needs no right to.
func (o *Observer) LogTo(file *os.File) {
	if o.log == nil {
		_ = file.Close() // nothing was written
		return
	}
	o.log.To(file)
}

// Flush completes the access log.
func (o *Observer) Flush() { o.log.Flush() }

// Router sets what is recorded of the requests of a router at an entry point: the first setting of those given
// decides. Requests to the gateway's own services are not counted, and logged only if
// the access log says so, as in Traefik. Redirections of entry points are like requests
// to others.
func (o *Observer) Router(entry string, r *route.Router, given ...*gateway.Observability) {
	logged, counted := recorded(given...)
	if strings.HasSuffix(r.Service, "@internal") && r.Service != "noop@internal" {
		counted = false
		logged = logged && o.internals
	}
	if r.Unlogged = !logged; counted {
		r.Source = o.Metrics.NewSource(entry, r.Name, r.Service)
	}
}

// recorded reports whether requests are logged and counted: nil means yes.
func recorded(given ...*gateway.Observability) (logged, counted bool) {
	var logs, metrics *bool
	for _, o := range given {
		if o == nil {
			continue
		}
		if logs == nil {
			logs = o.AccessLogs
		}
		if metrics == nil {
			metrics = o.Metrics
		}
	}
	return logs == nil || *logs, metrics == nil || *metrics
}

// Entry records the requests at one entry point. Its methods may be called concurrently.
type Entry struct {
	*Observer
	name string
	// source has the counters of requests without a router. If nil, they are not counted.
	source *metric.Source
	// unlogged leaves requests without a router out of the access log.
	unlogged   bool
	inProgress *metric.Open
}

// Entry returns what records the requests at an entry point.
func (o *Observer) Entry(value gateway.EntryPoint) *Entry {
	logged, counted := recorded(value.Observability)
	e := &Entry{Observer: o, name: value.Name, unlogged: !logged, inProgress: o.Metrics.OpenAtEntry(value.Name)}
	if counted {
		e.source = o.Metrics.NewSource(value.Name, "", "")
	}
	return e
}

// Begin returns the exchange of a request. It notes what the end of the request does not show any more.
func (e *Entry) Begin(w http.ResponseWriter, r *http.Request) *Exchange {
	x := exchanges.Get().(*Exchange)
	*x = Exchange{ResponseWriter: w, started: time.Now(), target: r.RequestURI, body: r.Body}
	if e.Metrics.Enabled {
		x.kind = metric.KindOf(r)
	}
	if e.log != nil {
		x.hasOrigin, x.hasHeaders = e.log.WritesOrigin()
	}
	return x
}

// Count counts the exchange as one in progress, if its router is counted.
func (e *Entry) Count(x *Exchange) {
	if x.counted = x.Router.Source != nil; x.counted {
		x.open = e.inProgress
		x.open.Begin(x.kind)
	}
}

// End counts and logs a request that has ended. Nothing uses the exchange afterwards.
func (e *Entry) End(x *Exchange, r *http.Request) {
	x.open.End(x.kind)
	e.record(x, r)
	*x = Exchange{}
	exchanges.Put(x)
}

func (e *Entry) record(x *Exchange, r *http.Request) {
	source, logged := e.source, e.log != nil && !e.unlogged
	if x.Router != nil {
		source, logged = x.Router.Source, e.log != nil && !x.Router.Unlogged
	}
	if source == nil && !logged {
		return
	}
	took := time.Since(x.started)
	if x.status == 0 {
		x.status = http.StatusOK
	}
	number := e.number.Add(1)
	if source != nil {
		e.Metrics.Count(source, &metric.Request{Kind: x.kind, Status: x.status, TLS: r.TLS, Service: x.service,
			Took: took, ServiceTook: x.took, Received: x.received(), Sent: x.written, Retries: x.attempts - 1})
	}
	if logged {
		l := accesslog.Request{Request: r, Entry: e.name, Number: number, Began: x.started, Took: took,
			Target: x.target, Received: x.received(), Sent: x.written, Status: x.status, Answer: x.Header(),
			Attempts: x.attempts, Service: x.service, Server: x.server, ServerTook: x.took, Origin: x.answer()}
		if x.Router != nil {
			l.Router = x.Router.Name
		}
		e.log.Write(&l)
	}
}
