package gateway_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	model "fairlead/internal/model/gateway"
)

// counted are settings that count requests by entry point, router and service.
func counted() model.Static {
	yes := true
	return model.Static{Metrics: &model.Metrics{EntryPoint: "web", AddRoutersLabels: &yes}}
}

// wantMetrics waits until the metrics have all lines: a request is counted after its response.
func (w *world) wantMetrics(lines ...string) {
	w.t.Helper()
	eventually(w.t, "metrics", func() error {
		_, metrics := w.get("http://x.test/metrics")
		for _, line := range lines {
			if !strings.Contains(metrics, line) {
				return fmt.Errorf("they lack %s:\n%s", line, metrics)
			}
		}
		return nil
	})
}

// wantNoMetrics checks that the metrics do not have the texts.
func (w *world) wantNoMetrics(texts ...string) {
	w.t.Helper()
	_, metrics := w.get("http://x.test/metrics")
	for _, text := range texts {
		if strings.Contains(metrics, text) {
			w.t.Errorf("the metrics have %s:\n%s", text, metrics)
		}
	}
}

// TestDashboards checks that the metrics are present that Traefik's own dashboards query, with
// default settings.
func TestDashboards(t *testing.T) {
	w := newWorld(t, model.Static{Metrics: &model.Metrics{EntryPoint: "web"}})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, named("hello"))})
	w.get("http://a.test/")
	text, err := os.ReadFile("testdata/dashboard-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), " traefik_"); ok && line[0] != '#' {
			lines = append(lines, "\ntraefik_"+name)
		}
	}
	if len(lines) != 19 {
		t.Errorf("the file has %d names, want 19", len(lines))
	}
	w.wantMetrics(append(lines, "\ntraefik_service_retries_total{", "\ntraefik_config_reloads_failure_total 0",
		"\ntraefik_config_last_reload_failure 0", "\ngo_goroutines ", "\nprocess_open_fds ")...)
	w.wantNoMetrics("traefik_router_")
}

// TestMetricsOfRequests checks the labels and values of a request over TLS with a body, and those of
// a request that is sent again.
func TestMetricsOfRequests(t *testing.T) {
	w := newWorld(t, counted())
	retried := serviceOf("http://127.0.0.1:1")
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{
			"secure@file":  {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
			"retried@file": {Rule: "Host(`b.test`)", Service: "retried@file", Middlewares: []string{"again@file"}}},
		Services: map[string]*model.Service{"s@file": server(t, readAll), "retried@file": retried},
		Middlewares: map[string]*model.Middleware{
			"again@file": {Retry: &model.Retry{Attempts: 3}}}}}, nil)
	w.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true,
		MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
	// The size of the second body is not in its head.
	for _, body := range []io.Reader{strings.NewReader("12345"), struct{ io.Reader }{strings.NewReader("123")}} {
		answer, err := w.client.Post("https://a.test/", "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	w.get("http://b.test/")
	const cipher = `tls_cipher="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",tls_version="1.2"`
	const post = `{code="200",entrypoint="web",method="POST",protocol="http"} `
	w.wantMetrics(
		`traefik_entrypoint_requests_bytes_total`+post+`8`, `traefik_entrypoint_responses_bytes_total`+post+`4`,
		`traefik_entrypoint_requests_tls_total{entrypoint="web",`+cipher+`} 2`,
		`traefik_router_requests_tls_total{router="secure@file",service="s@file",`+cipher+`} 2`,
		`traefik_service_requests_tls_total{service="s@file",`+cipher+`} 2`,
		`traefik_service_retries_total{service="s@file"} 0`,
		`traefik_service_retries_total{service="retried@file"} 2`,
		`traefik_service_requests_total{code="502",method="GET",protocol="http",service="retried@file"} 1`)
}

// readAll reads the body of the request and answers "ok".
func readAll(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "ok")
}

// TestLabelsOfSettings checks which metrics the settings leave out.
func TestLabelsOfSettings(t *testing.T) {
	yes, no := true, false
	for name, s := range map[string]struct {
		settings model.Metrics
		has      map[string]bool
	}{
		"default": {model.Metrics{}, map[string]bool{"entrypoint": true, "service": true}},
		"routers": {model.Metrics{AddEntryPointsLabels: &no, AddRoutersLabels: &yes, AddServicesLabels: &no},
			map[string]bool{"router": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s.settings.EntryPoint = "web"
			w := newWorld(t, model.Static{Metrics: &s.settings})
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": server(t, named("hello"))})
			w.get("http://a.test/")
			for _, scope := range []string{"entrypoint", "router", "service"} {
				if metric := "traefik_" + scope + "_requests_total{"; s.has[scope] {
					w.wantMetrics(metric)
				} else {
					w.wantNoMetrics("traefik_" + scope + "_")
				}
			}
		})
	}
}

// TestOpenRequests checks the requests in progress of an entry point and a service.
func TestOpenRequests(t *testing.T) {
	w := newWorld(t, counted())
	begun, may := make(chan bool), make(chan bool)
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, func(http.ResponseWriter, *http.Request) {
			begun <- true
			<-may
		})})
	const atEntry = `traefik_entrypoint_open_connections{entrypoint="web",method="GET",protocol="http"} `
	const atService = `traefik_service_open_connections{method="GET",protocol="http",service="s@file"} `
	ended := make(chan bool)
	go func() {
		w.get("http://a.test/")
		ended <- true
	}()
	<-begun
	w.wantMetrics(atEntry+"1", atService+"1")
	may <- true
	<-ended
	w.wantMetrics(atEntry+"0", atService+"0")
}

// TestMetricsOfGoneObjects removes a router and a service, and changes the service of a router,
// while requests to them are in progress.
func TestMetricsOfGoneObjects(t *testing.T) {
	w := newWorld(t, counted())
	begun, may := make(chan bool), make(chan bool)
	slow := server(t, func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-may
	})
	moved := func(service string) *model.Router { return &model.Router{Rule: "Host(`moved.test`)", Service: service} }
	one, other := server(t, named("one")), server(t, named("other"))
	w.apply(map[string]*model.Router{"gone@file": {Rule: "Host(`gone.test`)", Service: "gone@file"},
		"moved@file": moved("one@file")},
		map[string]*model.Service{"gone@file": slow, "one@file": one, "other@file": other})
	ended := make(chan bool)
	get := func() {
		w.get("http://gone.test/")
		ended <- true
	}
	go get()
	<-begun
	may <- true
	<-ended
	w.get("http://moved.test/")
	w.wantMetrics(`router="gone@file",service="gone@file"} 1`, `router="moved@file",service="one@file"} 1`)
	go get()
	<-begun
	w.apply(map[string]*model.Router{"moved@file": moved("other@file")},
		map[string]*model.Service{"one@file": one, "other@file": other})
	w.wantNoMetrics("gone@file", `router="moved@file",service="one@file"`)
	may <- true
	<-ended
	w.get("http://moved.test/")
	w.wantMetrics(`traefik_entrypoint_requests_total{code="200",entrypoint="web",method="GET",protocol="http"} 4`,
		`router="moved@file",service="other@file"} 1`, `code="200",method="GET",protocol="http",service="one@file"} 1`)
	w.wantNoMetrics("gone@file", `router="moved@file",service="one@file"`)
}

// TestMetricsWhileObjectsChange sends requests while their router and service come and go.
func TestMetricsWhileObjectsChange(t *testing.T) {
	w := newWorld(t, counted())
	routers := map[string]*model.Router{"gone@file": {Rule: "Host(`gone.test`)", Service: "gone@file"}}
	services := map[string]*model.Service{"gone@file": server(t, named("hello"))}
	h, err := w.gateway.Handler("web")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan bool)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() { requestUntil(t, h, "http://gone.test/", stop) })
	}
	for range 200 {
		w.apply(routers, services)
		w.apply(nil, nil)
	}
	close(stop)
	clients.Wait()
	w.wantNoMetrics("gone@file")
	w.apply(routers, services)
	w.get("http://gone.test/")
	w.wantMetrics(`traefik_router_requests_total{code="200",method="GET",protocol="http",router="gone@file",` +
		`service="gone@file"} 1`)
}

// requestUntil sends requests to the handler until the channel is closed.
func requestUntil(t *testing.T, h http.Handler, url string, stop <-chan bool) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, url, nil))
		if answer.Code != http.StatusOK && answer.Code != http.StatusNotFound {
			t.Errorf("status %d", answer.Code)
		}
	}
}
