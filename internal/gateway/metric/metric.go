package metric

import (
	"sync"

	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are those of one gateway.
type Metrics struct {
	// Enabled: requests are counted. It does not change.
	Enabled  bool
	Registry *prometheus.Registry
	// Connections are the open connections by entry point and protocol, Refused those that limits
	// refused, by entry point and limit.
	Connections *prometheus.GaugeVec
	Refused     *prometheus.CounterVec
	// Dropped are the copies of requests that no mirror has got because there were too many.
	Dropped prometheus.Counter

	reloads  prometheus.Counter
	reloaded prometheus.Gauge
	expiry   *prometheus.GaugeVec

	// mu protects the configuration, and the maps of what follows. What the settings leave out is
	// nil.
	mu                             sync.Mutex
	config                         *gateway.Config
	entryPoints, routers, services *scope
	openAtEntries, openAtServices  *opens
}

// New returns the metrics with the settings. Nil settings count no requests, unless they are counted for the charts of
// a dashboard: then those of entry points are.
func New(settings *gateway.Metrics, charts bool) *Metrics {
	if settings == nil && charts {
		no := false
		settings = &gateway.Metrics{AddServicesLabels: &no}
	}
	m := &Metrics{Enabled: settings != nil, Registry: prometheus.NewRegistry(), config: &gateway.Config{}}
	m.Connections = m.gauges("traefik_open_connections", "Open connections.", "entrypoint", "protocol")
	m.expiry = m.gauges("traefik_tls_certs_not_after", "End of a certificate, in seconds since 1970.", "cn",
		"serial", "sans")
	m.reloads = m.counter("traefik_config_reloads_total", "Configurations that were put to use.")
	m.reloaded = m.gauge("traefik_config_last_reload_success",
		"Time of the last configuration, in seconds since 1970.")
	// As in Traefik v2, these stay 0: faulty objects are left out, and the rest is put to use.
	m.counter("traefik_config_reloads_failure_total", "Configurations that were not put to use.")
	m.gauge("traefik_config_last_reload_failure", "Time of the last failure, in seconds since 1970.")
	m.Refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_gateway_refused_connections_total",
		Help: "Connections that were closed at once because there were too many, by limit."},
		[]string{"entrypoint", "limit"})
	m.Dropped = m.counter("fairlead_gateway_dropped_copies_total",
		"Copies of requests that no mirror has got because there were too many.")
	m.Registry.MustRegister(m.Refused, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if settings != nil {
		m.addScopes(settings)
	}
	return m
}

// addScopes adds the metrics of entry points, routers and services that the settings have.
func (m *Metrics) addScopes(settings *gateway.Metrics) {
	buckets := settings.Buckets
	if len(buckets) == 0 {
		buckets = []float64{0.1, 0.3, 1.2, 5}
	}
	if isSet(settings.AddEntryPointsLabels, true) {
		m.entryPoints = newScope(m.Registry, "entrypoint", buckets, "entrypoint")
		m.openAtEntries = newOpens(m.Registry, &m.mu, "entrypoint")
	}
	if isSet(settings.AddRoutersLabels, false) {
		m.routers = newScope(m.Registry, "router", buckets, "router", "service")
	}
	if isSet(settings.AddServicesLabels, true) {
		m.services = newScope(m.Registry, "service", buckets, "service")
		m.openAtServices = newOpens(m.Registry, &m.mu, "service")
	}
}

func isSet(value *bool, otherwise bool) bool {
	if value == nil {
		return otherwise
	}
	return *value
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.Registry.MustRegister(g)
	return g
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	m.Registry.MustRegister(g)
	return g
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.Registry.MustRegister(c)
	return c
}

// HasServices reports whether services have metrics.
func (m *Metrics) HasServices() bool { return m.services != nil }

// OpenAtEntry and OpenAtService return the counters of open requests. They return nil if the
// settings leave them out.
func (m *Metrics) OpenAtEntry(name string) *Open   { return m.openAtEntries.get(name) }
func (m *Metrics) OpenAtService(name string) *Open { return m.openAtServices.get(name) }
