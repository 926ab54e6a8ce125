package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
)

// limitedRouters is a configuration with a middleware in front of the service s@file, which
// the router has through a chain.
func limitedRouters(limit *model.Middleware, service *model.Service, rule string) *model.Config {
	return &model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{"r@file": {Rule: rule, Service: "s@file",
			Middlewares: []string{"chain@file"}}},
		Middlewares: map[string]*model.Middleware{"limit@file": limit,
			"chain@file": {Chain: &model.Chain{Middlewares: []string{"limit@file"}}}},
		Services: map[string]*model.Service{"s@file": service}}}
}

// changesAround applies configurations in which everything but the middleware changes: the
// servers, the rule, the chain; the service is missing in one.
func changesAround(w *world, limit func() *model.Middleware, service *model.Service) {
	more := *service.LoadBalancer
	more.Servers = append(slices.Clone(more.Servers), model.Server{URL: more.Servers[0].URL + "/more"})
	w.gateway.Apply(limitedRouters(limit(), &model.Service{LoadBalancer: &more}, "Host(`a.test`)"), nil)
	gone := limitedRouters(limit(), service, "Host(`a.test`)")
	delete(gone.HTTP.Services, "s@file")
	w.gateway.Apply(gone, nil)
	last := limitedRouters(limit(), service, "Host(`a.test`) && PathPrefix(`/`)")
	last.HTTP.Middlewares["other@file"] = &model.Middleware{AddPrefix: &model.AddPrefix{Prefix: "/x"}}
	last.HTTP.Middlewares["chain@file"].Chain.Middlewares = []string{"other@file", "limit@file"}
	w.gateway.Apply(last, nil)
}

// TestChangesKeepRates checks that a client whose rate is exhausted gets no request through
// because something else changes, and that other values of the middleware begin anew.
func TestChangesKeepRates(t *testing.T) {
	w, service := newWorld(t, model.Static{}), server(t, named("ok"))
	rate := func(average int64) func() *model.Middleware {
		return func() *model.Middleware {
			return &model.Middleware{RateLimit: &model.RateLimit{Average: average, Period: 24 * time.Hour}}
		}
	}
	w.gateway.Apply(limitedRouters(rate(1)(), service, "Host(`a.test`)"), nil)
	if status, _ := w.get("http://a.test/"); status != 200 {
		t.Fatalf("the first request: %d", status)
	}
	changesAround(w, rate(1), service)
	if status, _ := w.get("http://a.test/"); status != 429 {
		t.Errorf("after changes of other objects: %d, want 429", status)
	}
	changesAround(w, rate(2), service)
	if status, _ := w.get("http://a.test/"); status != 200 {
		t.Errorf("after a change of the rate: %d, want 200", status)
	}
}

// TestChangesKeepRequestsInFlight checks that requests which began before a change count.
func TestChangesKeepRequestsInFlight(t *testing.T) {
	w := newWorld(t, model.Static{})
	arrived, release := make(chan struct{}), make(chan struct{})
	service := server(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			close(arrived)
			<-release
		}
	})
	limit := func() *model.Middleware { return &model.Middleware{InFlightReq: &model.InFlightReq{Amount: 1}} }
	w.gateway.Apply(limitedRouters(limit(), service, "Host(`a.test`)"), nil)
	first := make(chan int)
	go func() {
		r, _ := http.NewRequest(http.MethodGet, "http://a.test/", nil) // a constant
		r.Header.Set("Wait", "1")
		answer, err := w.client.Do(r)
		if err != nil {
			first <- 0
			return
		}
		answer.Body.Close()
		first <- answer.StatusCode
	}()
	<-arrived
	changesAround(w, limit, service)
	if status, _ := w.get("http://a.test/"); status != 429 {
		t.Errorf("beside a request from before the change: %d, want 429", status)
	}
	close(release)
	if status := <-first; status != 200 {
		t.Errorf("the request from before the change: %d", status)
	}
	if status, _ := w.get("http://a.test/"); status != 200 {
		t.Errorf("after the first request has ended: %d, want 200", status)
	}
}

// TestChangesKeepCircuitBreakers checks that an open circuit breaker stays open.
func TestChangesKeepCircuitBreakers(t *testing.T) {
	w := newWorld(t, model.Static{})
	service := server(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusInternalServerError)
	})
	breaker := func() *model.Middleware {
		return &model.Middleware{CircuitBreaker: &model.CircuitBreaker{CheckPeriod: time.Nanosecond,
			Expression: "ResponseCodeRatio(500, 600, 0, 600) > 0.5", FallbackDuration: time.Hour, ResponseCode: 418}}
	}
	w.gateway.Apply(limitedRouters(breaker(), service, "Host(`a.test`)"), nil)
	eventually(t, "the circuit breaker opens", func() error {
		if status, _ := w.get("http://a.test/"); status != 418 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	changesAround(w, breaker, service)
	if status, _ := w.get("http://a.test/"); status != 418 {
		t.Errorf("after changes of other objects: %d, want 418", status)
	}
}

// TestPlacesHaveTheirOwnStates checks that routers do not share a middleware's state, and that
// a middleware that a router has twice has two.
func TestPlacesHaveTheirOwnStates(t *testing.T) {
	w := newWorld(t, model.Static{})
	config := func(servers ...string) *model.Config {
		return &model.Config{HTTP: model.HTTP{
			Routers: map[string]*model.Router{
				"a@file": {Rule: "Host(`a.test`)", Service: "s@file", Middlewares: []string{"limit@file"}},
				"b@file": {Rule: "Host(`b.test`)", Service: "s@file",
					Middlewares: []string{"limit@file", "limit@file"}}},
			Middlewares: map[string]*model.Middleware{"limit@file": {RateLimit: &model.RateLimit{Average: 2,
				Burst: 2, Period: 24 * time.Hour}}},
			Services: map[string]*model.Service{"s@file": serviceOf(servers...)}}}
	}
	url := server(t, named("ok")).LoadBalancer.Servers[0].URL
	got := ""
	for i := range 4 { // two pass, whatever changes
		w.gateway.Apply(config(url, fmt.Sprint(url, "/", i)), nil)
		for _, host := range []string{"a", "b"} {
			status, _ := w.get("http://" + host + ".test/")
			got += fmt.Sprintln(host, status)
		}
	}
	if want := "a 200\nb 200\na 200\nb 200\na 429\nb 429\na 429\nb 429\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestChangesKeepTurns changes the configuration before each request: nevertheless all servers
// get the same number, for HTTP, TCP and UDP, directly and through weighted services.
func TestChangesKeepTurns(t *testing.T) {
	w, port := udpWorld(t, "127.0.0.1:0")
	var urls, tcp, udp []string
	for _, name := range []string{"one", "two", "three"} {
		urls = append(urls, server(t, named(name)).LoadBalancer.Servers[0].URL)
		tcp = append(tcp, tcpServer(t, greeting(name)).LoadBalancer.Servers[0].Address)
		udp = append(udp, udpServer(t, name))
	}
	got := map[string]map[string]int{"http": {}, "weighted": {}, "tcp": {}, "udp": {}}
	for i := range 6 {
		config := turning(i, urls, tcp, udp)
		for _, s := range w.gateway.Apply(config, nil) {
			if len(s.Reasons) > 0 {
				t.Fatal(s)
			}
		}
		for _, kind := range []string{"http", "weighted"} {
			_, body := w.get("http://" + kind + ".test/")
			got[kind][body]++
		}
		got["tcp"][w.tcpLine()]++
		got["udp"][strings.TrimSuffix(exchangeUDP(t, dialUDP(t, "127.0.0.1", port), "."), ".")]++
	}
	for kind, servers := range got {
		for _, name := range []string{"one", "two", "three"} {
			if servers[name] != 2 {
				t.Errorf("%s: requests by server %v, want two each", kind, servers)
				break
			}
		}
	}
}

// tcpLine returns the first line of a TCP router's server.
func (w *world) tcpLine() string {
	_, text := w.secureLine(&tls.Config{ServerName: "tcp.test"})
	return text
}

// turning returns a configuration that differs by number in each object.
func turning(number int, urls, tcp, udp []string) *model.Config {
	pass := number%2 == 0
	http := serviceOf(urls...)
	http.LoadBalancer.PassHostHeader = &pass
	c := &model.Config{
		HTTP: model.HTTP{Routers: map[string]*model.Router{
			"http@file":     {Rule: "Host(`http.test`)", Service: "http@file"},
			"weighted@file": {Rule: "Host(`weighted.test`)", Service: "weighted@file"}},
			Services: map[string]*model.Service{"http@file": http, "weighted@file": {Weighted: &model.Weighted{}}}},
		TCP: model.TCP{Routers: map[string]*model.TCPRouter{"tcp@file": {Rule: "HostSNI(`tcp.test`)",
			Service: "tcp@file", TLS: &model.TCPRouterTLS{}, Priority: 1 + number}},
			Services: map[string]*model.TCPService{"tcp@file": tcpServiceOf(tcp...)}},
		UDP: model.UDP{Routers: map[string]*model.UDPRouter{"udp@file": {Service: "udp@file"}},
			Services: map[string]*model.UDPService{"udp@file": {LoadBalancer: &model.UDPLoadBalancer{}}}}}
	for i, url := range urls {
		name := fmt.Sprintf("part%d@file", i)
		part := serviceOf(url)
		part.LoadBalancer.PassHostHeader = &pass
		c.HTTP.Services[name] = part
		weighted := c.HTTP.Services["weighted@file"].Weighted
		weighted.Services = append(weighted.Services, model.WeightedService{Name: name})
	}
	for _, address := range udp {
		lb := c.UDP.Services["udp@file"].LoadBalancer
		lb.Servers = append(lb.Servers, model.UDPServer{Address: address})
	}
	return c
}

// TestChangesKeepConditions checks that a server which failed requests, or which is slow, is
// known as such after another server was added to its service.
func TestChangesKeepConditions(t *testing.T) {
	w := newWorld(t, model.Static{})
	var requests [2]chan struct{}
	var urls []string
	for i, status := range []int{http.StatusBadGateway, http.StatusOK} {
		requests[i] = make(chan struct{}, 100)
		urls = append(urls, server(t, func(rw http.ResponseWriter, _ *http.Request) {
			requests[i] <- struct{}{}
			rw.WriteHeader(status)
		}).LoadBalancer.Servers[0].URL)
	}
	apply := func(urls ...string) {
		s := serviceOf(urls...)
		s.LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: time.Hour}
		w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
			map[string]*model.Service{"s@file": s})
	}
	apply(urls...)
	for range 4 {
		w.get("http://a.test/")
	}
	if n := len(requests[0]); n != 1 {
		t.Fatalf("the failing server got %d requests, want 1", n)
	}
	apply(append(urls, server(t, named("new")).LoadBalancer.Servers[0].URL)...)
	for range 6 {
		w.get("http://a.test/")
	}
	if n := len(requests[0]); n != 1 {
		t.Errorf("after a change the failing server got %d requests more", n-1)
	}
}

// TestChangesKeepTimes checks that the strategy leasttime knows after a change which server is
// slow.
func TestChangesKeepTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, model.Static{})
	slow := make(chan struct{}, 100)
	urls := []string{
		server(t, func(rw http.ResponseWriter, r *http.Request) {
			slow <- struct{}{}
			select {
			case <-time.After(slowly): // what the strategy measures
			case <-r.Context().Done():
			}
		}).LoadBalancer.Servers[0].URL,
		server(t, named("fast")).LoadBalancer.Servers[0].URL}
	apply := func(urls ...string) {
		s := serviceOf(urls...)
		s.LoadBalancer.Strategy = "leasttime"
		w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
			map[string]*model.Service{"s@file": s})
	}
	apply(urls...)
	for len(slow) == 0 || w.body("http://a.test/") != "fast" {
		w.get("http://a.test/")
	}
	known := len(slow)
	for i := range 5 {
		apply(append(urls, fmt.Sprintf("%s/%d", urls[1], i))...)
		w.get("http://a.test/")
		w.get("http://a.test/")
	}
	if n := len(slow); n != known {
		t.Errorf("changes made the slow server get %d requests", n-known)
	}
}

func (w *world) body(url string) string {
	_, text := w.get(url)
	return text
}

// TestChangesKeepSessions checks that clients resume their TLS sessions (RFC 8446, 2.2) after
// routers, certificates and options have changed, at HTTPS and at TCP routers.
func TestChangesKeepSessions(t *testing.T) {
	w := newWorld(t, model.Static{})
	service, echo := server(t, named("ok")), tcpServer(t, greeting("hello"))
	apply := func(number int) {
		w.gateway.Apply(&model.Config{
			TLS: model.TLS{Certificates: []model.Certificate{certificate(t, "*.gateway.test")},
				Options: map[string]*model.TLSOptions{"own@file": {MinVersion: "VersionTLS12", SNIStrict: number > 0}}},
			HTTP: model.HTTP{Routers: map[string]*model.Router{"r@file": {Rule: "Host(`a.gateway.test`)",
				Service: "s@file", Priority: 1 + number, TLS: &model.RouterTLS{Options: "own@file"}}},
				Services: map[string]*model.Service{"s@file": service}},
			TCP: model.TCP{Routers: map[string]*model.TCPRouter{"r@file": {Rule: "HostSNI(`tcp.gateway.test`)",
				Service: "s@file", Priority: 1 + number, TLS: &model.TCPRouterTLS{}}},
				Services: map[string]*model.TCPService{"s@file": echo}}}, nil)
	}
	for _, name := range []string{"a.gateway.test", "tcp.gateway.test"} {
		for _, most := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			apply(0)
			config := &tls.Config{ServerName: name, MaxVersion: most,
				ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			if w.resumes(config) {
				t.Errorf("%s, version %x: the first connection has a session", name, most)
			}
			apply(1)
			if !w.resumes(config) {
				t.Errorf("%s, version %x: the session does not survive a change", name, most)
			}
		}
	}
}

// resumes reports whether a connection resumes a session. It reads an answer, with which
// a client of TLS 1.3 gets its ticket.
func (w *world) resumes(config *tls.Config) bool {
	w.t.Helper()
	config.InsecureSkipVerify = true
	c := tls.Client(w.dial(), config)
	if err := c.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+config.ServerName+"\r\n\r\n") // the next read fails
	if line(c) == "no line" {
		w.t.Errorf("%s: no answer", config.ServerName)
	}
	return c.ConnectionState().DidResume
}
