package build

import (
	"slices"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

// Down returns the URLs of an HTTP service's servers that are down.
func (o *Objects) Down(service string) (down []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if built := o.kept.services[service]; built != nil {
		for s, c := range built.state.Servers() {
			if !c.IsUp() {
				down = append(down, s.String())
			}
		}
	}
	return down
}

// LastFailures returns the last failures of an HTTP service's servers, by their URLs as shown.
func (o *Objects) LastFailures(service string) map[string]shown.Failure {
	o.mu.Lock()
	defer o.mu.Unlock()
	built := o.kept.services[service]
	if built == nil {
		return nil
	}
	var all map[string]shown.Failure
	for s, c := range built.state.Servers() {
		last, url := c.Last(), gateway.ShownURL(s.String())
		if last == nil || last.At.Before(all[url].At) {
			continue
		}
		if all == nil {
			all = map[string]shown.Failure{}
		}
		all[url] = shown.Failure(*last)
	}
	return all
}

// TCPDown returns the addresses of a TCP service's servers that are down.
func (o *Objects) TCPDown(service string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams.Down(service)
}

// CheckedDown returns the services' servers that failed their last check, for Inherit of the next gateway.
func (o *Objects) CheckedDown() (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, service := range o.kept.services {
		all = append(all, service.state.Down(name)...)
	}
	slices.Sort(all)
	return all
}

// Inherit takes the servers that an earlier gateway has found down. Call it before the first Apply.
func (o *Objects) Inherit(down []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Services.Inherit(down)
}

// serversUp is the metric of the servers' conditions. It is read from the configuration
// in use, so it has each server from the start, and none that is gone.
type serversUp struct{ *Objects }

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
