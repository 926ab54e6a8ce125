package gateway

import (
	"strings"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/route"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// observe sets what is recorded of the requests of a router at an entry point: the first setting of those given
// decides. Requests to the gateway's own services are not counted, and logged only if
// the access log says so, as in Traefik. Redirections of entry points are like requests
// to others.
func (b *builder) observe(entry string, r *route.Router, given ...*gateway.Observability) {
	logged, counted := recorded(given...)
	if strings.HasSuffix(r.Service, "@internal") && r.Service != "noop@internal" {
		counted = false
		logged = logged && b.static.AccessLog != nil && b.static.AccessLog.AddInternals
	}
	if r.Unlogged = !logged; counted {
		r.Source = b.observer.metrics.NewSource(entry, r.Name, r.Service)
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

// serversUp is the metric of the servers' conditions. It is read from the configuration
// in use, so it has each server from the start, and none that is gone.
type serversUp struct{ *Gateway }

var serverUp = prometheus.NewDesc("traefik_service_server_up", "Whether a server is up (1) or down (0).",
	[]string{"service", "url"}, nil)

// Describe implements prometheus.Collector.
func (s serversUp) Describe(to chan<- *prometheus.Desc) { to <- serverUp }

// Collect implements prometheus.Collector.
func (s serversUp) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer goroutine.Recover("collect metrics")
	for service, built := range s.kept.services {
		for at, c := range built.conditions {
			value := 0.0
			if c.IsUp() {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(serverUp, prometheus.GaugeValue, value, service,
				gateway.ShownURL(at.url.String()))
		}
	}
}
