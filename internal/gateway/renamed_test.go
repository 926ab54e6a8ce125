package gateway_test

import (
	"net/http"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// renamings are the names of an object while another owner comes and goes.
var renamings = [][2]string{{"@docker", ".a@docker"}, {".a@docker", "@docker"}}

// TestRenamedRoutersKeepRates checks that an exhausted rate stays exhausted while a router, its service and
// its middleware get other names. A router of another owner counts for itself.
func TestRenamedRoutersKeepRates(t *testing.T) {
	w, service := newWorld(t, model.Static{}), server(t, named("ok"))
	owned := func(suffix string) *model.Config {
		return &model.Config{HTTP: model.HTTP{
			Routers: map[string]*model.Router{"shop" + suffix: {Rule: "Host(`a.test`)", Service: "shop" + suffix,
				Middlewares: []string{"limit" + suffix}}},
			Middlewares: map[string]*model.Middleware{"limit" + suffix: {
				RateLimit: &model.RateLimit{Average: 1, Period: 24 * time.Hour}}},
			Services: map[string]*model.Service{"shop" + suffix: service}}}
	}
	want := func(when string, status int) {
		t.Helper()
		if got, _ := w.get("http://a.test/"); got != status {
			t.Errorf("%s: %d, want %d", when, got, status)
		}
	}
	w.gateway.Apply(owned("@docker"), nil)
	want("the first request", http.StatusOK)
	for _, names := range renamings {
		next := owned(names[1])
		next.Renamed = []model.Renamed{{Kind: "router", From: "shop" + names[0], To: "shop" + names[1]},
			{Kind: "service", From: "shop" + names[0], To: "shop" + names[1]},
			{Kind: "middleware", From: "limit" + names[0], To: "limit" + names[1]}}
		w.gateway.Apply(next, nil)
		want("with names "+names[1], http.StatusTooManyRequests)
	}
	w.gateway.Apply(owned(".b@docker"), nil)
	want("a router of another owner", http.StatusOK)
}

// TestRenamedServicesKeepCookies checks that the default cookie of a service does not depend on its owner.
func TestRenamedServicesKeepCookies(t *testing.T) {
	w, service := newWorld(t, model.Static{}), server(t, named("ok"))
	service.LoadBalancer.Sticky = &model.Sticky{Cookie: &model.Cookie{}}
	cookies := map[string]bool{}
	for _, suffix := range []string{"@docker", ".a@docker", ".a.container:x@docker"} {
		w.apply(map[string]*model.Router{"shop" + suffix: {Rule: "Host(`a.test`)", Service: "my-shop" + suffix}},
			map[string]*model.Service{"my-shop" + suffix: service})
		answer, err := w.client.Get("http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		for _, c := range answer.Cookies() {
			cookies[c.Name] = true
		}
	}
	if len(cookies) != 1 {
		t.Errorf("cookies %v, want one name", cookies)
	}
}

// TestRenamedRoutersKeepConnections checks that a limit of TCP connections counts those from before.
func TestRenamedRoutersKeepConnections(t *testing.T) {
	w, service := newWorld(t, model.Static{}), tcpServer(t, greeting("a"))
	owned := func(suffix string) *model.Config {
		return &model.Config{TCP: model.TCP{
			Routers: map[string]*model.TCPRouter{"db" + suffix: {Rule: "HostSNI(`*`)", Service: "db" + suffix,
				Middlewares: []string{"one" + suffix}}},
			Middlewares: map[string]*model.TCPMiddleware{"one" + suffix: {
				InFlightConn: &model.InFlightConn{Amount: 1}}},
			Services: map[string]*model.TCPService{"db" + suffix: service}}}
	}
	w.gateway.Apply(owned("@docker"), nil)
	if got := line(w.dial()); got != "a" {
		t.Fatalf("got %q", got)
	}
	for _, names := range renamings {
		next := owned(names[1])
		next.Renamed = []model.Renamed{{Kind: "TCP router", From: "db" + names[0], To: "db" + names[1]},
			{Kind: "TCP middleware", From: "one" + names[0], To: "one" + names[1]}}
		w.gateway.Apply(next, nil)
		if got := w.newLine(); got != "no line" {
			t.Errorf("with names %s, a second connection gets %q", names[1], got)
		}
	}
}
