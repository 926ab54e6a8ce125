package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// TestTruncationOverTLS breaks a response to a client of HTTP/1.0 off. The end of the connection ends the body,
// so the client must not see an orderly end.
func TestTruncationOverTLS(t *testing.T) {
	begun := make(chan struct{})
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"t@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}}},
		map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write(make([]byte, 1000))
			_ = http.NewResponseController(rw).Flush()
			<-begun
			panic(http.ErrAbortHandler)
		})})
	c := tls.Client(w.connect(), &tls.Config{InsecureSkipVerify: true, ServerName: "a.test"})
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	close(begun)
	if got, err := io.ReadAll(c); err == nil {
		t.Errorf("a truncated response ends without an error, after %d more bytes", len(got))
	}
}

// TestSlowServer sends parts of a long response when the client has the part before: no part may be held back.
func TestSlowServer(t *testing.T) {
	const part, parts = 100, 5
	for _, protocol := range []string{"HTTP/1.1", "HTTP/1.1 TLS", "HTTP/2", "HTTP/3"} {
		t.Run(protocol, func(t *testing.T) {
			received := make(chan struct{}, parts)
			w := newFaultWorld(t, "http", place.Timeout)
			w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"},
				"t@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}}},
				map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Content-Length", "200000")
					for range parts {
						_, _ = rw.Write(make([]byte, part))
						_ = http.NewResponseController(rw).Flush()
						select {
						case <-received:
						case <-r.Context().Done():
							return
						}
					}
					_, _ = rw.Write(make([]byte, 200000-parts*part))
				})})
			client, closes := w.faultClient(protocol)
			t.Cleanup(closes)
			client.Timeout = place.Timeout
			url := "https://a.test/"
			if protocol == "HTTP/1.1" {
				url = "http://a.test/"
			}
			answer, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			for i := range parts {
				if _, err := io.ReadFull(answer.Body, make([]byte, part)); err != nil {
					t.Fatalf("part %d does not arrive: %v", i, err)
				}
				received <- struct{}{}
			}
			if n, err := io.Copy(io.Discard, answer.Body); n != 200000-parts*part || err != nil {
				t.Errorf("the rest has %d bytes, error %v", n, err)
			}
		})
	}
}

// TestGRPCWebKeepsConnections sends requests of gRPC-Web on one connection of HTTP/1.1.
func TestGRPCWebKeepsConnections(t *testing.T) {
	w := exposed(t, model.EntryPoint{}, map[string]*model.Middleware{"g@file": {GRPCWeb: &model.GRPCWeb{
		AllowOrigins: []string{"*"}}}}, "g@file")
	c := w.connect()
	from := bufio.NewReader(c)
	text := strings.Repeat("x", 20_000) // more than the gateway buffers
	for range 3 {
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc-web\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(text), text)
		answer, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.Close || !strings.Contains(string(body), text) {
			t.Errorf("%.100q, error %v, the connection closes: %v", body, err, answer.Close)
		}
	}
}

// TestEarlyAnswers answers each attempt before the body is there: the client gets that answer, not a time-out of an
// attempt that follows. How many attempts there are depends on whether the gateway waits for the client by then.
func TestEarlyAnswers(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Middlewares: map[string]*model.Middleware{"again@file": {Retry: &model.Retry{Attempts: 3,
			Status: []string{"503"}, RetryNonIdempotentMethod: true}}},
		Routers: map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file",
			Middlewares: []string{"again@file"}}},
		Services: map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			rw.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(rw).Flush()
		})}}}, nil)
	c := w.connect()
	_, _ = fmt.Fprintf(c, "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000\r\n\r\n%s",
		strings.Repeat("x", 50_000))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %v, error %v, want 503", answer, err)
	}
}

// TestBufferingIsObserved: the service's metrics have requests that a middleware buffers.
func TestBufferingIsObserved(t *testing.T) {
	w := newWorld(t, model.Static{Metrics: &model.Metrics{EntryPoint: "web"}})
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Middlewares: map[string]*model.Middleware{"b@file": {Buffering: &model.Buffering{}}},
		Routers: map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file",
			Middlewares: []string{"b@file"}}},
		Services: map[string]*model.Service{"s@file": server(t, named("ok"))}}}, nil)
	w.get("http://a.test/")
	w.wantMetrics(`traefik_service_requests_total{code="200",method="GET",protocol="http",service="s@file"} 1`)
}
