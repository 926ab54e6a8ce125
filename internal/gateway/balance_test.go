package gateway_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// farm starts servers that answer with their number.
func farm(t *testing.T, count int) *model.Service {
	t.Helper()
	var urls []string
	for i := range count {
		s := httptest.NewServer(named(string(rune('a' + i))))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	return serviceOf(urls...)
}

func number(n int) *int { return &n }

func TestWeights(t *testing.T) {
	w := newWorld(t, model.Static{})
	s := farm(t, 3)
	s.LoadBalancer.Servers[0].Weight = number(3)
	s.LoadBalancer.Servers[2].Weight = number(0)
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	count := map[string]int{}
	for range 40 {
		_, body := w.get("http://a.test/")
		count[body]++
	}
	if count["a"] != 30 || count["b"] != 10 || count["c"] != 0 {
		t.Errorf("requests by server %v, want a 30, b 10, c 0", count)
	}
}

// TestSticky checks that a client with a cookie keeps its server, also with a cookie of
// Traefik's older form, and gets another server if its own is gone.
func TestSticky(t *testing.T) {
	w := newWorld(t, model.Static{})
	s := farm(t, 3)
	s.LoadBalancer.Sticky = &model.Sticky{Cookie: &model.Cookie{Secure: true, SameSite: "lax"}}
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	answer, err := w.client.Get("http://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	cookie := answer.Cookies()[0]
	if !strings.HasPrefix(cookie.Name, "_") || len(cookie.Name) != 6 || len(cookie.Value) != 16 || !cookie.Secure ||
		cookie.SameSite != http.SameSiteLaxMode {
		t.Errorf("cookie %v", cookie)
	}
	_, first := w.get("http://a.test/", "Cookie", cookie.Name+"="+cookie.Value)
	for range 5 {
		if _, body := w.get("http://a.test/", "Cookie", cookie.Name+"="+cookie.Value); body != first {
			t.Errorf("server %s, want %s", body, first)
		}
		raw := s.LoadBalancer.Servers[2].URL
		if _, body := w.get("http://a.test/", "Cookie", cookie.Name+"="+raw); body != "c" {
			t.Errorf("server %s for the cookie with a URL, want c", body)
		}
		if status, _ := w.get("http://a.test/", "Cookie", cookie.Name+"=0000"); status != 200 {
			t.Errorf("status %d for an unknown cookie", status)
		}
	}
}

func TestHealthCheck(t *testing.T) {
	var sick atomic.Bool
	asked := make(chan bool, 100)
	w := newWorld(t, model.Static{})
	s := server(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			if sick.Load() {
				rw.WriteHeader(http.StatusInternalServerError)
			}
			select {
			case asked <- true:
			default:
			}
		}
	})
	s.LoadBalancer.HealthCheck = &model.HealthCheck{Path: "/health", Interval: 1e6}
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	for _, step := range []struct {
		sick bool
		want int
	}{{false, 200}, {true, 503}, {false, 200}} {
		sick.Store(step.sick)
		for range 1000 { // each round waits for the next check
			<-asked
			if status, _ := w.get("http://a.test/"); status == step.want {
				break
			}
		}
		if status, _ := w.get("http://a.test/"); status != step.want {
			t.Errorf("status %d while sick is %v, want %d", status, step.sick, step.want)
		}
	}
}

func TestComposedServices(t *testing.T) {
	w := newWorld(t, model.Static{})
	var copies atomic.Int64
	copied := make(chan struct{}, 10)
	w.apply(map[string]*model.Router{
		"weighted@file": {Rule: "Host(`weighted.test`)", Service: "weighted@file"},
		"failover@file": {Rule: "Host(`failover.test`)", Service: "failover@file"},
		"mirror@file":   {Rule: "Host(`mirror.test`)", Service: "mirror@file"},
	}, map[string]*model.Service{
		"one@file": server(t, named("one")), "two@file": server(t, named("two")), "none@file": serviceOf(),
		"copies@file": server(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Host == "mirror.test" {
				copies.Add(1)
			}
			copied <- struct{}{}
		}),
		"weighted@file": {Weighted: &model.Weighted{Services: []model.WeightedService{{Name: "one@file",
			Weight: number(3)},
			{Name: "two@file"}, {Name: "none@file"}}}},
		"failover@file": {Failover: &model.Failover{Service: "none@file", Fallback: "two@file"}},
		"mirror@file": {Mirroring: &model.Mirroring{Service: "one@file", Mirrors: []model.Mirror{{Name: "copies@file",
			Percent: 50}}}},
	})
	count := map[string]int{}
	for range 50 {
		_, body := w.get("http://weighted.test/")
		count[body]++
	}
	if count["one"]+count["two"] != 50 || count["one"] < 2*count["two"] {
		t.Errorf("requests by service %v, want three times as many to one as to two", count)
	}
	if _, body := w.get("http://failover.test/"); body != "two" {
		t.Errorf("failover answers %q, want two", body)
	}
	for range 4 {
		if _, body := w.get("http://mirror.test/"); body != "one" {
			t.Errorf("mirroring answers %q, want one", body)
		}
	}
	<-copied
	<-copied
	if copies.Load() != 2 {
		t.Errorf("%d copies of 4 requests, want 2", copies.Load())
	}
}

// TestChangesUnderLoad changes the configuration while requests run: none may fail.
func TestChangesUnderLoad(t *testing.T) {
	w := newWorld(t, model.Static{})
	s := farm(t, 3)
	routers := map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}}
	w.apply(routers, map[string]*model.Service{"s@file": s})
	stop, failed := make(chan struct{}), make(chan int)
	for range 4 {
		go func() {
			bad := 0
			for {
				select {
				case <-stop:
					failed <- bad
					return
				default:
				}
				if answer, err := w.client.Get("http://a.test/"); err != nil || answer.StatusCode != 200 {
					bad++
				} else {
					answer.Body.Close()
				}
			}
		}()
	}
	for i := range 200 {
		now := *s.LoadBalancer
		now.Servers = now.Servers[i%3 : i%3+1]
		statuses := w.apply(routers, map[string]*model.Service{"s@file": {LoadBalancer: &now}})
		if statuses[0].State != status.Enabled {
			t.Fatal(statuses)
		}
	}
	close(stop)
	for range 4 {
		if bad := <-failed; bad > 0 {
			t.Errorf("%d requests failed", bad)
		}
	}
}

// TestUnreachableServersAreLeft checks that a request whose server refuses connections
// goes to another one, also if it has a body: the first one has received nothing.
func TestUnreachableServersAreLeft(t *testing.T) {
	w := newWorld(t, model.Static{})
	s := farm(t, 1)
	s.LoadBalancer.Servers = append(s.LoadBalancer.Servers, model.Server{URL: "http://" + refusingAddress(t)})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	for range 10 {
		answer, err := w.client.Post("http://a.test/", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 200 {
			t.Errorf("status %d", answer.StatusCode)
		}
	}
}

// TestHighestRandomWeight checks that the address of a client decides which of two services it gets,
// that a service without weight gets none, and that clients go to the other one while a service is
// down.
func TestHighestRandomWeight(t *testing.T) {
	w := newWorld(t, model.Static{})
	services := map[string]*model.Service{"a@file": server(t, named("a")), "b@file": server(t, named("b")),
		"down@file": serviceOf()}
	divide := func(parts ...model.WeightedService) map[string]bool {
		all := maps.Clone(services)
		all["w@file"] = &model.Service{HighestRandomWeight: &model.Weighted{Services: parts}}
		w.apply(map[string]*model.Router{"w@file": {Rule: "PathPrefix(`/`)", Service: "w@file"}}, all)
		got := map[string]bool{}
		for range 8 {
			_, body := w.get("http://w.test/")
			got[body] = true
		}
		return got
	}
	zero := 0
	both := []model.WeightedService{{Name: "a@file"}, {Name: "b@file"}}
	if got := divide(both...); len(got) != 1 || !got["a"] && !got["b"] {
		t.Errorf("one client got the answers %v", got)
	}
	if got := divide(model.WeightedService{Name: "a@file", Weight: &zero}, both[1]); len(got) != 1 || !got["b"] {
		t.Errorf("a service without weight: answers %v", got)
	}
	if got := divide(both[0], model.WeightedService{Name: "down@file"}); len(got) != 1 || !got["a"] {
		t.Errorf("a service without servers: answers %v", got)
	}
}
