package gateway

import (
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

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
		for at, c := range built.state.Servers() {
			value := 0.0
			if c.IsUp() {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(serverUp, prometheus.GaugeValue, value, service,
				gateway.ShownURL(at.String()))
		}
	}
}
