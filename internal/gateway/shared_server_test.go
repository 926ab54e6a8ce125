package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// sharing are the services of the tests below: all have the same server. Its checks succeed for
// well@file and fail for sick@file; plain@file is not checked. The routers have the names of the
// services as hosts, for example sick.test.
func sharing(url string, interval time.Duration) *model.Config {
	c := &model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{}, Services: map[string]*model.Service{}}}
	for _, name := range []string{"sick", "well", "plain"} {
		s := serviceOf(url)
		if name != "plain" {
			s.LoadBalancer.HealthCheck = &model.HealthCheck{Path: "/" + name, Interval: interval}
		}
		c.HTTP.Services[name+"@file"] = s
		c.HTTP.Routers[name+"@file"] = &model.Router{Rule: "Host(`" + name + ".test`)", Service: name + "@file"}
	}
	return c
}

// checkedServer starts a server for them.
func checkedServer(t *testing.T) (url string) {
	return server(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sick" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}).LoadBalancer.Servers[0].URL
}

// awaitSick waits until the failed check has taken the server out of its service.
func (w *world) awaitSick() {
	w.t.Helper()
	eventually(w.t, "the check takes the server out", func() error {
		if status, _ := w.get("http://sick.test/"); status != http.StatusServiceUnavailable {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
}

// onlySick checks that the server is out of one service, and in the others.
func (w *world) onlySick(when string) {
	w.t.Helper()
	for name, want := range map[string]int{"sick": 503, "well": 200, "plain": 200} {
		if status, _ := w.get("http://" + name + ".test/"); status != want {
			w.t.Errorf("%s: %s answers %d, want %d", when, name, status, want)
		}
	}
}

// TestServicesHaveTheirOwnConditions checks that a failed check takes a server out of its own
// service only, and that changes of other services do not bring it back.
func TestServicesHaveTheirOwnConditions(t *testing.T) {
	w := newWorld(t, model.Static{Metrics: &model.Metrics{EntryPoint: "web"}})
	url := checkedServer(t)
	w.gateway.Apply(sharing(url, time.Hour), nil)
	w.awaitSick()
	w.onlySick("after its check")
	pass := false
	for _, name := range []string{"plain@file", "well@file"} {
		c := sharing(url, time.Hour)
		c.HTTP.Services[name].LoadBalancer.PassHostHeader = &pass
		w.gateway.Apply(c, nil)
		w.onlySick("after a change of " + name)
	}
	for name, want := range map[string]string{"sick": "down", "well": "up", "plain": "up"} {
		answer, err := w.gateway.Explain("", http.MethodGet, "http://"+name+".test/")
		if err != nil || len(answer.Servers) != 1 || answer.Servers[0].State != want {
			t.Errorf("explain %s: %+v, %v, want %s", name, answer.Servers, err, want)
		}
		if got := w.gateway.Objects().Services[name+"@file"].ServerStatus[url]; strings.ToLower(got) != want {
			t.Errorf("the API shows %s as %q, want %s", name, got, want)
		}
		_, metrics := w.get("http://x.test/metrics")
		value := map[string]int{"down": 0, "up": 1}[want]
		line := fmt.Sprintf("traefik_service_server_up{service=\"%s@file\",url=%q} %d", name, url, value)
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// TestChecksOfOneServerDisagree repeats checks that disagree: the conditions do not change.
func TestChecksOfOneServerDisagree(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.gateway.Apply(sharing(checkedServer(t), time.Millisecond), nil)
	w.awaitSick()
	for range 100 {
		if w.onlySick("between checks"); t.Failed() {
			return
		}
	}
}

// TestServicesHaveTheirOwnFailures fails requests of one service: the server stays in the other
// one, whose successes are not those of the first.
func TestServicesHaveTheirOwnFailures(t *testing.T) {
	w := newWorld(t, model.Static{})
	url := server(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Host == "sick.test" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}).LoadBalancer.Servers[0].URL
	c := sharing(url, time.Hour)
	for _, s := range c.HTTP.Services {
		s.LoadBalancer.HealthCheck = nil
		s.LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: time.Hour, MaxFailedAttempts: 2}
	}
	w.gateway.Apply(c, nil)
	got := ""
	for _, name := range []string{"sick", "well", "sick", "sick", "well"} {
		status, _ := w.get("http://" + name + ".test/")
		got += fmt.Sprintf("%s %d\n", name, status)
	}
	if want := "sick 500\nwell 200\nsick 500\nsick 503\nwell 200\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestNextGatewayInheritsConditions gives the conditions to another gateway, whose first checks do
// not end.
func TestNextGatewayInheritsConditions(t *testing.T) {
	var silent atomic.Bool
	url := server(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/":
		case silent.Load():
			<-r.Context().Done()
		case r.URL.Path == "/sick":
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}).LoadBalancer.Servers[0].URL
	old := newWorld(t, model.Static{})
	old.gateway.Apply(sharing(url, time.Hour), nil)
	old.awaitSick()
	silent.Store(true)
	next := newWorld(t, model.Static{})
	next.gateway.Inherit(old.gateway.Handover())
	c := sharing(url, time.Hour)
	for _, s := range c.HTTP.Services {
		if s.LoadBalancer.HealthCheck != nil {
			s.LoadBalancer.HealthCheck.Timeout = time.Hour
		}
	}
	next.gateway.Apply(c, nil)
	next.onlySick("after the handover")
}
