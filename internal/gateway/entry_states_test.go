package gateway_test

import (
	"testing"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// TestRoutersWithoutSomeEntryPoints checks that a router that lacks one of its entry points is doubtful, and
// disabled only if it lacks all.
func TestRoutersWithoutSomeEntryPoints(t *testing.T) {
	static := model.Static{Default: []string{"web"}, EntryPoints: []model.EntryPoint{{Name: "web", Address: ":80"},
		{Name: "faulty", Address: ":81", Middlewares: []string{"none@file"}},
		{Name: "dns", Address: ":53/udp"}, {Name: "ntp", Address: ":123/udp"}}}
	http := func(entries ...string) *model.Router {
		return &model.Router{Rule: "Host(`a.test`)", Service: "s@file", EntryPoints: entries}
	}
	tcp := func(entries ...string) *model.TCPRouter {
		return &model.TCPRouter{Rule: "HostSNI(`*`)", Service: "s@file", EntryPoints: entries}
	}
	udp := func(entries ...string) *model.UDPRouter {
		return &model.UDPRouter{Service: "s@file", EntryPoints: entries}
	}
	g, err := gateway.Checking(static, &model.Config{
		HTTP: model.HTTP{Routers: map[string]*model.Router{"h1@file": http("wbe", "web"), "h2@file": http("wbe"),
			"h3@file": http("web", "faulty"), "h4@file": http("faulty")},
			Services: map[string]*model.Service{"s@file": {LoadBalancer: &model.LoadBalancer{}}}},
		TCP: model.TCP{Routers: map[string]*model.TCPRouter{"t1@file": tcp("wbe", "web"), "t2@file": tcp("wbe")},
			Services: map[string]*model.TCPService{"s@file": {LoadBalancer: &model.TCPLoadBalancer{}}}},
		UDP: model.UDP{Routers: map[string]*model.UDPRouter{"u1@file": udp("dns"), "u2@file": udp("dns", "ntp"),
			"u3@file": udp("dsn", "ntp")},
			Services: map[string]*model.UDPService{"s@file": {LoadBalancer: &model.UDPLoadBalancer{}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]status.State{"h1@file": status.Warning, "h2@file": status.Disabled,
		"h3@file": status.Warning, "h4@file": status.Disabled, "t1@file": status.Warning,
		"t2@file": status.Disabled, "u1@file": status.Enabled, "u2@file": status.Warning,
		"u3@file": status.Disabled}
	for _, s := range g.Status() {
		if state, ok := want[s.Name]; ok && (s.State != state || len(s.Reasons) == 0 != (state == status.Enabled)) {
			t.Errorf("%s is %s: %v, want %s", s.Name, s.State, s.Reasons, state)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("no state of %v", want)
	}
}
