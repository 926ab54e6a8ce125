package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// TestPassiveHealthCheck fails requests to one of two servers: it is left out after the
// given number of failures, and comes back after the window.
func TestPassiveHealthCheck(t *testing.T) {
	var sick atomic.Bool
	sick.Store(true)
	bad := server(t, func(rw http.ResponseWriter, r *http.Request) {
		if sick.Load() {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(rw, "bad")
	})
	good := server(t, named("good"))
	both := serviceOf(bad.LoadBalancer.Servers[0].URL, good.LoadBalancer.Servers[0].URL)
	w := newWorld(t, model.Static{Metrics: &model.Metrics{EntryPoint: "web"}})
	set := func(window time.Duration) {
		lb := *both.LoadBalancer
		lb.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: window, MaxFailedAttempts: 2}
		w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
			map[string]*model.Service{"s@file": {LoadBalancer: &lb}})
	}
	failures := func() (n int) {
		for range 20 {
			if status, _ := w.get("http://a.test/"); status == 500 {
				n++
			}
		}
		return n
	}
	set(time.Hour)
	if n := failures(); n != 2 {
		t.Errorf("%d of 20 requests failed, want the 2 that take the server out", n)
	}
	set(time.Minute) // a change of the configuration does not bring it back
	if n := failures(); n != 0 {
		t.Errorf("%d requests reached the server that is out", n)
	}
	_, metrics := w.get("http://x.test/metrics")
	for i, s := range both.LoadBalancer.Servers {
		want := fmt.Sprintf("traefik_service_server_up{service=\"s@file\",url=%q} %d", s.URL, i)
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
}

// TestPassiveHealthCheckEnds waits until a server that was taken out gets requests again.
func TestPassiveHealthCheckEnds(t *testing.T) {
	var requests atomic.Int64
	s := server(t, func(rw http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			rw.WriteHeader(http.StatusBadGateway)
		}
	})
	s.LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: time.Millisecond}
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	if status, _ := w.get("http://a.test/"); status != 502 {
		t.Fatalf("status %d", status)
	}
	for range 1000 {
		if status, _ := w.get("http://a.test/"); status == 200 {
			return
		}
	}
	t.Error("the server does not come back")
}

// slowly is how long a slow server takes to answer: longer than a fast one that has no CPU time.
const slowly = 2 * time.Second

// TestLeastTime sends requests to a fast and a slow server: the fast one gets nearly all.
func TestLeastTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Static{})
	slow := server(t, func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(slowly):
		case <-r.Context().Done():
		}
		fmt.Fprint(rw, "slow")
	})
	s := serviceOf(slow.LoadBalancer.Servers[0].URL, server(t, named("fast")).LoadBalancer.Servers[0].URL)
	s.LoadBalancer.Strategy = "leasttime"
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": s})
	got := map[string]int{}
	for range 50 {
		_, body := w.get("http://a.test/")
		got[body]++
	}
	if got["slow"] == 0 || got["slow"] > 10 {
		t.Errorf("requests by server: %v, want each tried and most to the fast one", got)
	}
}

// TestNoServerAnswersRetryAfter checks the answer while no server is up.
func TestNoServerAnswersRetryAfter(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"},
		"w@file": {Rule: "Host(`w.test`)", Service: "w@file"}},
		map[string]*model.Service{"s@file": serviceOf(),
			"w@file": {Weighted: &model.Weighted{Services: []model.WeightedService{{Name: "s@file"}}}}})
	for _, url := range []string{"http://a.test/", "http://w.test/"} {
		answer, err := w.client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s, %v", url, answer.Status, answer.Header)
		}
	}
}

// h2cServer starts a server that speaks HTTP/2 without TLS only, as gRPC servers do.
func h2cServer(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "h2c://", 1)
}

// TestHealthCheckProtocols checks servers that speak HTTP/2 without TLS only: with a
// request, and with the gRPC health checking protocol.
func TestHealthCheckProtocols(t *testing.T) {
	type answer struct {
		message []byte
		status  string
	}
	serving := answer{[]byte{0, 0, 0, 0, 2, 8, 1}, "0"}
	for name, c := range map[string]struct {
		check model.HealthCheck
		grpc  answer
		want  int
	}{
		"http over h2c":    {model.HealthCheck{Path: "/health"}, serving, 200},
		"grpc":             {model.HealthCheck{Mode: "grpc"}, serving, 200},
		"grpc, down":       {model.HealthCheck{Mode: "grpc"}, answer{[]byte{0, 0, 0, 0, 2, 8, 2}, "0"}, 503},
		"grpc, no service": {model.HealthCheck{Mode: "grpc"}, answer{nil, "12"}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string, 1000)
			url := h2cServer(t, func(rw http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/grpc.health.v1.Health/Check":
					rw.Header().Set("Content-Type", "application/grpc")
					rw.Header().Set("Trailer", "Grpc-Status")
					_, _ = rw.Write(c.grpc.message)
					rw.Header().Set("Grpc-Status", c.grpc.status)
				case "/":
					return
				}
				select {
				case asked <- r.Proto + " " + r.Method + " " + r.Header.Get("Content-Type"):
				default:
				}
			})
			s := serviceOf(url)
			c.check.Interval = time.Millisecond
			s.LoadBalancer.HealthCheck = &c.check
			w := newWorld(t, model.Static{})
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": s})
			first := <-asked
			<-asked // the first check has ended
			if status, _ := w.get("http://a.test/"); status != c.want {
				t.Errorf("status %d, want %d", status, c.want)
			}
			if c.check.Mode == "grpc" && first != "HTTP/2.0 POST application/grpc" {
				t.Errorf("the check is %q", first)
			}
		})
	}
}
