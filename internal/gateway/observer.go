package gateway

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// observer counts and logs requests.
type observer struct {
	log      *accessLog
	registry *prometheus.Registry

	// handles has the metrics by their labels: to find one costs more than to route a
	// request.
	handles  sync.Map // of handleKey → *handle
	scopes   map[string]scope
	open     *prometheus.GaugeVec
	reloads  prometheus.Counter
	reloaded prometheus.Gauge
	expiry   *prometheus.GaugeVec
	refused  *prometheus.CounterVec
	metrics  bool
	number   atomic.Uint64
	// unmatched says what is recorded of requests without a router, by entry point.
	unmatched map[string]*gateway.Observability
}

// scope has the metrics of entry points, of routers or of services.
type scope struct {
	requests, sent *prometheus.CounterVec
	duration       *prometheus.HistogramVec
}

type handleKey struct {
	scope, name, service, method, protocol string
	status                                 int
}

type handle struct {
	requests, sent prometheus.Counter
	duration       prometheus.Observer
}

func newObserver(static gateway.Static) (*observer, error) {
	o := &observer{metrics: static.Metrics != nil, registry: prometheus.NewRegistry(),
		unmatched: map[string]*gateway.Observability{}}
	for _, e := range static.EntryPoints {
		o.unmatched[e.Name] = e.Observability
	}
	var err error
	if static.AccessLog != nil {
		if o.log, err = newAccessLog(*static.AccessLog); err != nil {
			return nil, err
		}
	}
	buckets := []float64{0.1, 0.3, 1.2, 5}
	if static.Metrics != nil && len(static.Metrics.Buckets) > 0 {
		buckets = static.Metrics.Buckets
	}
	o.scopes = map[string]scope{
		"entrypoint": o.scope("entrypoint", buckets, "entrypoint"),
		"router":     o.scope("router", buckets, "router", "service"),
		"service":    o.scope("service", buckets, "service"),
	}
	o.open = o.gauges("traefik_open_connections", "Open connections.", "entrypoint", "protocol")
	o.expiry = o.gauges("traefik_tls_certs_not_after", "End of a certificate, in seconds since 1970.", "cn", "serial",
		"sans")
	o.reloads = prometheus.NewCounter(prometheus.CounterOpts{Name: "traefik_config_reloads_total",
		Help: "Configurations that were put to use."})
	o.reloaded = prometheus.NewGauge(prometheus.GaugeOpts{Name: "traefik_config_last_reload_success",
		Help: "Time of the last configuration, in seconds since 1970."})
	o.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_gateway_refused_connections_total",
		Help: "Connections that were closed at once because there were too many, by limit."},
		[]string{"entrypoint", "limit"})
	o.registry.MustRegister(o.reloads, o.reloaded, o.refused)
	return o, nil
}

func (o *observer) scope(name string, buckets []float64, labels ...string) scope {
	all := append([]string{"code", "method", "protocol"}, labels...)
	s := scope{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "traefik_" + name + "_requests_total",
			Help: "Requests by " + name + "."}, all),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "traefik_" + name + "_responses_bytes_total",
			Help: "Bytes of response bodies by " + name + "."}, all),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "traefik_" + name + "_request_duration_seconds", Help: "Duration of requests by " + name + ".",
			Buckets: buckets}, all),
	}
	o.registry.MustRegister(s.requests, s.sent, s.duration)
	return s
}

func (o *observer) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	o.registry.MustRegister(g)
	return g
}

// record counts and logs a request that has ended.
func (o *observer) record(entry string, x *exchange, r *http.Request) {
	logged, counted := o.wants(entry, x.router)
	if !logged && !counted {
		return
	}
	took := time.Since(x.started)
	if x.status == 0 {
		x.status = http.StatusOK
	}
	number := o.number.Add(1)
	if counted {
		key := handleKey{scope: "entrypoint", name: entry, method: methodLabel(r.Method), protocol: protocolLabel(r),
			status: x.status}
		o.count(key, took, x.written)
		if x.router != nil {
			key.scope, key.name, key.service = "router", x.router.Name, x.router.Service
			o.count(key, took, x.written)
		}
		if x.service != "" {
			key.scope, key.name, key.service = "service", x.service, ""
			o.count(key, x.took, x.written)
		}
	}
	if logged {
		o.log.write(entry, number, took, x, r)
	}
}

func (o *observer) count(key handleKey, took time.Duration, sent int64) {
	h, ok := o.handles.Load(key)
	if !ok {
		h, _ = o.handles.LoadOrStore(key, o.scopes[key.scope].handle(key))
	}
	at := h.(*handle)
	at.requests.Inc()
	at.sent.Add(float64(sent))
	at.duration.Observe(took.Seconds())
}

func (s scope) handle(key handleKey) *handle {
	labels := []string{strconv.Itoa(key.status), key.method, key.protocol, key.name}
	if key.scope == "router" {
		labels = append(labels, key.service)
	}
	return &handle{s.requests.WithLabelValues(labels...), s.sent.WithLabelValues(labels...),
		s.duration.WithLabelValues(labels...)}
}

// methodLabel keeps clients from making one metric per invented method.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "EXTENSION_METHOD"
}

func protocolLabel(r *http.Request) string {
	switch {
	case r.Header.Get("Upgrade") != "":
		return "websocket"
	case r.Header.Get("Accept") == "text/event-stream":
		return "sse"
	}
	return "http"
}

// connections returns a function that counts the open connections of the entry point.
// It takes those that have ended off all.
func (o *observer) connections(entry string, all *connections) func(net.Conn, http.ConnState) {
	open := o.open.WithLabelValues(entry, "TCP")
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

// configured counts a new configuration and removes the metrics of what it lacks.
func (o *observer) configured(s *snapshot) {
	o.reloads.Inc()
	o.reloaded.SetToCurrentTime()
	o.expiry.Reset()
	for _, c := range s.tls.certificates {
		leaf := c.Leaf
		o.expiry.WithLabelValues(leaf.Subject.CommonName, leaf.SerialNumber.String(), joined(leaf.DNSNames)).
			Set(float64(leaf.NotAfter.Unix()))
	}
}
