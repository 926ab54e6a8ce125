package gateway

import (
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"fairlead/internal/model/gateway"
)

// TestFlushIntervals checks that each service has its own interval, also with a server that others have, too.
func TestFlushIntervals(t *testing.T) {
	g, err := New(gateway.Static{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	service := func(interval time.Duration) *gateway.Service {
		return &gateway.Service{LoadBalancer: &gateway.LoadBalancer{
			Servers:            []gateway.Server{{URL: "h2c://127.0.0.1:1"}},
			ResponseForwarding: &gateway.ResponseForwarding{FlushInterval: interval}}}
	}
	g.Apply(&gateway.Config{HTTP: gateway.HTTP{Services: map[string]*gateway.Service{
		"a@file": service(-1), "b@file": service(time.Hour), "c@file": service(0)}}}, nil)
	found := map[time.Duration]bool{}
	for _, s := range g.running {
		proxy := reflect.ValueOf(s.forward).Elem().FieldByName("proxy").Elem()
		found[time.Duration(proxy.FieldByName("FlushInterval").Int())] = true
	}
	want := []time.Duration{-1, 100 * time.Millisecond, time.Hour}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("intervals %v, want %v", got, want)
	}
}
