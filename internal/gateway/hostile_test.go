package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// TestPanicsDisableOneObject builds objects whose building panics. Each is disabled with the panic as its reason, what
// needs it is disabled too, and the others are served. With the next configuration, it is built again.
func TestPanicsDisableOneObject(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{
		{Name: "web", Address: "127.0.0.1:0"}, {Name: "dns", Address: "127.0.0.1:0/udp"}}})
	good, bad := server(t, named("good")), server(t, named("bad"))
	config := func() *model.Config {
		return &model.Config{HTTP: model.HTTP{
			Services: map[string]*model.Service{"good@file": good, "bad@file": bad},
			Routers: map[string]*model.Router{
				"good@file": {Rule: "Host(`good.test`)", Service: "good@file"},
				"user@file": {Rule: "Host(`user.test`)", Service: "bad@file"}},
		}}
	}
	first := config()
	delete(first.HTTP.Services, "bad@file")
	w.gateway.Apply(first, nil)
	faulty := config()
	faulty.TCP.Routers = map[string]*model.TCPRouter{"bad@file": nil}
	faulty.UDP.Routers = map[string]*model.UDPRouter{"bad@file": nil}
	var statuses []status.Status
	w.gateway.WithoutServers(func() { statuses = w.gateway.Apply(faulty, nil) })
	for _, want := range []string{"service bad@file", "TCP router bad@file", "UDP router bad@file"} {
		if !hasReason(statuses, want, "internal error at ") {
			t.Errorf("%s has no reason: %+v", want, statuses)
		}
	}
	if !hasReason(statuses, "router user@file", "is disabled") {
		t.Errorf("the router of the service is not disabled: %+v", statuses)
	}
	answers := func(want map[string]string) {
		t.Helper()
		for host, text := range want {
			if status, body := w.get("http://" + host + "/"); (status == http.StatusOK) != (text != "") ||
				text != "" && body != text {
				t.Errorf("%s answers %d %q, want %q", host, status, body, text)
			}
		}
	}
	answers(map[string]string{"good.test": "good", "user.test": ""})
	repaired := config()
	changed := *bad
	changed.LoadBalancer = &model.LoadBalancer{Servers: bad.LoadBalancer.Servers, Strategy: "p2c"}
	repaired.HTTP.Services["bad@file"] = &changed
	w.gateway.Apply(repaired, nil)
	answers(map[string]string{"good.test": "good", "user.test": "bad"})
}

// TestShortCheckIntervalsAreReported checks services with a health check every nanosecond: their states say that another
// interval is in effect.
func TestShortCheckIntervalsAreReported(t *testing.T) {
	w := newWorld(t, model.Static{})
	service := server(t, named("a"))
	service.LoadBalancer.HealthCheck = &model.HealthCheck{Interval: 1}
	stream := &model.TCPService{LoadBalancer: &model.TCPLoadBalancer{HealthCheck: &model.TCPHealthCheck{Interval: -1}}}
	statuses := w.gateway.Apply(&model.Config{
		HTTP: model.HTTP{Services: map[string]*model.Service{"a@file": service}},
		TCP:  model.TCP{Services: map[string]*model.TCPService{"a@file": stream}}}, nil)
	for object, want := range map[string]string{"service": "healthCheck.interval 1ns is too short: 100ms is in effect",
		"TCP service": "healthCheck.interval -1ns is negative: the default is in effect"} {
		if !slices.ContainsFunc(statuses, func(s status.Status) bool {
			return s.Kind == object && s.State == status.Warning && slices.Contains(s.Reasons, want)
		}) {
			t.Errorf("no %s has the reason %q: %+v", object, want, statuses)
		}
	}
}

// hasReason reports whether the object KIND NAME is disabled with a reason that has the text.
func hasReason(all []status.Status, object, text string) bool {
	for _, s := range all {
		if s.Kind+" "+s.Name == object && s.State == status.Disabled && strings.Contains(strings.Join(s.Reasons,
			" "), text) {
			return true
		}
	}
	return false
}
