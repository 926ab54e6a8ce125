package metric_test

import (
	"fmt"
	"testing"
	"time"

	"fairlead/internal/gateway/metric"
	"fairlead/internal/model/gateway"
)

// one has a router to a service.
var one = &gateway.Config{HTTP: gateway.HTTP{
	Routers:  map[string]*gateway.Router{"r@file": {Service: "s@file"}},
	Services: map[string]*gateway.Service{"s@file": {}}}}

func enabled() *metric.Metrics {
	yes := true
	m := metric.New(&gateway.Metrics{AddRoutersLabels: &yes}, false)
	m.Configure(one, []string{"r@file"}, []string{"s@file"})
	return m
}

// request is a request to the service, and its answer has the status.
func request(status int) *metric.Request {
	return &metric.Request{Status: status, Service: "s@file", Took: time.Millisecond, Sent: 5}
}

// series returns how many series of requests the metrics have.
func series(t *testing.T, m *metric.Metrics) (n int) {
	t.Helper()
	all, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		switch family.GetName() {
		case "traefik_entrypoint_requests_total", "traefik_router_requests_total", "traefik_service_requests_total":
			n += len(family.GetMetric())
		}
	}
	return n
}

// TestCountAllocatesNothing checks the cost of requests after the first one of their class.
func TestCountAllocatesNothing(t *testing.T) {
	m := enabled()
	s, r := m.NewSource("web", "r@file", "s@file"), request(200)
	if n := testing.AllocsPerRun(100, func() { m.Count(s, r) }); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// TestSourcesShareCounters checks that a router that is built again counts on, and that classes with
// the same place in the lists are apart.
func TestSourcesShareCounters(t *testing.T) {
	m := enabled()
	for range 2 {
		s := m.NewSource("web", "r@file", "s@file")
		for status := 200; status < 264; status++ {
			m.Count(s, request(status))
		}
	}
	if n := series(t, m); n != 3*64 {
		t.Errorf("%d series, want %d", n, 3*64)
	}
}

// TestConfigureKeepsWhatItHas checks that only objects that are gone lose their metrics.
func TestConfigureKeepsWhatItHas(t *testing.T) {
	m := enabled()
	s := m.NewSource("web", "r@file", "s@file")
	m.Count(s, request(200))
	m.Configure(one, []string{"r@file"}, []string{"s@file"})
	if n := series(t, m); n != 3 {
		t.Errorf("%d series after a change, want 3", n)
	}
	m.Configure(&gateway.Config{}, []string{"r@file"}, []string{"s@file"})
	m.Count(s, request(404)) // a request that was in progress
	if n := series(t, m); n != 2 {
		t.Errorf("%d series without router and service, want the two of the entry point", n)
	}
}

// TestTotals adds up what the entry points have counted, with the metrics and for charts alone.
func TestTotals(t *testing.T) {
	for _, m := range []*metric.Metrics{enabled(), metric.New(nil, true)} {
		s := m.NewSource("web", "r@file", "s@file")
		for _, status := range []int{200, 200, 404, 502} {
			m.Count(s, request(status))
		}
		got := m.Totals()
		if got.CPUSeconds <= 0 {
			t.Errorf("%v seconds of CPU time", got.CPUSeconds)
		}
		got.CPUSeconds = 0
		if want := (metric.Totals{Counted: true, Requests: 4, ClientErrors: 1, ServerErrors: 1, Seconds: 0.004,
			Sent: 20}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if got := metric.New(nil, false).Totals(); got.Counted || got.Requests != 0 {
		t.Errorf("without metrics: %+v", got)
	}
}

// BenchmarkCount is what the metrics cost a request.
func BenchmarkCount(b *testing.B) {
	m := enabled()
	s, r := m.NewSource("web", "r@file", "s@file"), request(200)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			m.Count(s, r)
		}
	})
}

// BenchmarkRemove removes one of 10,000 routers and services.
func BenchmarkRemove(b *testing.B) {
	m := metric.New(&gateway.Metrics{}, false)
	config := &gateway.Config{HTTP: gateway.HTTP{Services: map[string]*gateway.Service{}}}
	for i := range 10_000 {
		config.HTTP.Services[fmt.Sprint(i)] = &gateway.Service{}
	}
	m.Configure(config, nil, nil)
	for name := range config.HTTP.Services {
		m.Count(m.NewSource("web", "", ""), &metric.Request{Status: 200, Service: name})
	}
	delete(config.HTTP.Services, "1")
	gone := []string{"1"}
	for b.Loop() {
		m.Configure(config, nil, gone)
	}
}
