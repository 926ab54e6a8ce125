// Package metrics serves the daemon's counters to Prometheus, on a unix socket or a
// loopback address. It counts the daemon's own actions when they happen, and reads
// all other counters at each scrape. Without scrapes it costs nothing.
//
// Directions are those of the workload: in is towards it. A range of published ports
// is one series, whatever its size.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"fairlead/internal/api"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Source returns the counters. *daemon.Daemon implements it.
type Source interface {
	Stats(context.Context) api.Stats
}

// Metrics are the metrics of one daemon. *Metrics implements daemon.Meter.
type Metrics struct {
	registry *prometheus.Registry
	apply    prometheus.Histogram
	failures prometheus.Counter
	healed   *prometheus.CounterVec
}

// applyBuckets are in seconds: from one publish to a thousand endpoints at once.
var applyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// New returns the metrics of a daemon with that version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		apply: prometheus.NewHistogram(prometheus.HistogramOpts{Name: applySeconds.Name, Help: applySeconds.Help,
			Buckets: applyBuckets}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: applyFailures.Name, Help: applyFailures.Help}),
		healed:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: healed.Name, Help: healed.Help}, healed.Labels),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.Name, Help: buildInfo.Help}, buildInfo.Labels)
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m.apply, m.failures, m.healed, build,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return m
}

// Applied implements daemon.Meter.
func (m *Metrics) Applied(took time.Duration, err error) {
	m.apply.Observe(took.Seconds())
	if err != nil {
		m.failures.Inc()
	}
}

// Healed implements daemon.Meter.
func (m *Metrics) Healed(kind string, n int) { m.healed.WithLabelValues(kind).Add(float64(n)) }

// Limits: the number of simultaneous scrapes, and the duration of a scrape.
const (
	maxScrapes  = 2
	scrapeLimit = 30 * time.Second
)

// Handler returns the handler of GET /metrics, which reads its counters from the
// source, and the state of the cluster.
func (m *Metrics) Handler(from Source, cluster Cluster, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(joined{m.registry, collector{from, log},
		clusterCollector{cluster, log}}, promhttp.HandlerOpts{
		// The client is on this host: compressing takes longer than copying.
		DisableCompression:  true,
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeLimit,
	}))
	return mux
}

// joined gathers from several gatherers that have no metric in common.
type joined []prometheus.Gatherer

// Gather implements prometheus.Gatherer.
func (j joined) Gather() ([]*dto.MetricFamily, error) {
	var all []*dto.MetricFamily
	var errs []error
	for _, g := range j {
		some, err := g.Gather()
		all, errs = append(all, some...), append(errs, err)
	}
	return all, errors.Join(errs...)
}
