package services

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"fairlead/internal/gateway/metric"
	"fairlead/internal/model/gateway"
)

// newSource returns the source of a service without parts.
func newSource() Source {
	return Source{Next: NewState(nil), Warn: func(string) {},
		Transport: func(string) (*gateway.ServersTransport, error) { return &gateway.ServersTransport{}, nil }}
}

// TestFlushIntervals checks that each service has its own interval, also with a server that others have, too.
func TestFlushIntervals(t *testing.T) {
	all := New(slog.New(slog.DiscardHandler), metric.New(nil, false))
	defer all.Close()
	for name, interval := range map[string]time.Duration{"a@file": -1, "b@file": time.Hour, "c@file": 0} {
		if _, err := all.Build(name, &gateway.Service{LoadBalancer: &gateway.LoadBalancer{
			Servers:            []gateway.Server{{URL: "h2c://127.0.0.1:1"}},
			ResponseForwarding: &gateway.ResponseForwarding{FlushInterval: interval}}}, newSource()); err != nil {
			t.Fatal(err)
		}
	}
	found := map[time.Duration]bool{}
	for _, s := range all.running {
		proxy := reflect.ValueOf(s.forward).Elem().FieldByName("proxy").Elem()
		found[time.Duration(proxy.FieldByName("FlushInterval").Int())] = true
	}
	want := []time.Duration{-1, 100 * time.Millisecond, time.Hour}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("intervals %v, want %v", got, want)
	}
}

// TestCheckIntervalsHaveAFloor checks a service with a health check every nanosecond: the shortest interval is in
// effect.
func TestCheckIntervalsHaveAFloor(t *testing.T) {
	all, from := New(slog.New(slog.DiscardHandler), metric.New(nil, false)), newSource()
	if _, err := all.Build("a@file", &gateway.Service{LoadBalancer: &gateway.LoadBalancer{
		Servers:     []gateway.Server{{URL: "http://127.0.0.1:1"}},
		HealthCheck: &gateway.HealthCheck{Interval: 1}}}, from); err != nil {
		t.Fatal(err)
	}
	all.Follow("a@file", from.Next)
	defer all.Follow("a@file", nil)
	if got := all.checks["a@file"].of.value.Interval; got != gateway.LeastCheckInterval {
		t.Errorf("the interval is %s, want %s", got, gateway.LeastCheckInterval)
	}
}
