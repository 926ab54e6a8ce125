package gateway_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// faultHosts are the hosts of a faultWorld. Each has a feature that acts on failures of servers.
var faultHosts = []string{"passive.test", "breaker.test", "retry.test"}

// faultWorld is a gateway whose features act on failures of two servers, which do not fail.
type faultWorld struct {
	logWorld
	servers []string
	// arrived has a channel per request, by its URI. It is closed when a server has the request.
	arrived sync.Map
}

// arrival returns a channel that is closed when a server has the request with the URI.
func (w *faultWorld) arrival(uri string) chan struct{} {
	c, _ := w.arrived.LoadOrStore(uri, make(chan struct{}))
	return c.(chan struct{})
}

// newFaultWorld starts the gateway before servers of the scheme http, https or h2c. The limit is that of silent
// clients, also for their first bytes.
func newFaultWorld(t *testing.T, scheme string, limit time.Duration) *faultWorld {
	t.Helper()
	w := &faultWorld{}
	entry := model.EntryPoint{Name: "web", Address: "127.0.0.1:0", HTTP3: &model.HTTP3{},
		Timeouts: model.Timeouts{Read: &limit, Write: &limit}}
	log := &model.AccessLog{Format: "json", FilePath: t.TempDir() + "/access.log"}
	w.logWorld = logWorld{newWorld(t, model.Static{EntryPoints: []model.EntryPoint{entry}, AccessLog: log,
		Metrics: &model.Metrics{EntryPoint: "web"}, Transport: model.ServersTransport{InsecureSkipVerify: true}}),
		log.FilePath}
	for range 2 {
		w.servers = append(w.servers, w.server(t, scheme))
	}
	config := &model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{},
		Services: map[string]*model.Service{}, Middlewares: map[string]*model.Middleware{
			"breaker.test@file": {CircuitBreaker: &model.CircuitBreaker{CheckPeriod: time.Millisecond,
				Expression:       "NetworkErrorRatio() > 0.1 || ResponseCodeRatio(500, 600, 0, 600) > 0.1",
				FallbackDuration: time.Hour}},
			"retry.test@file": {Retry: &model.Retry{Attempts: 4, RetryNonIdempotentMethod: true}},
		}}}
	for _, host := range faultHosts {
		of := serviceOf(w.servers...)
		if host == "passive.test" {
			of.LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{FailureWindow: time.Hour,
				MaxFailedAttempts: 2}
		}
		config.HTTP.Services[host+"@file"] = of
		plain := &model.Router{Rule: "Host(`" + host + "`)", Service: host + "@file"}
		if config.HTTP.Middlewares[host+"@file"] != nil {
			plain.Middlewares = []string{host + "@file"}
		}
		secure := *plain
		secure.TLS = &model.RouterTLS{}
		config.HTTP.Routers[host+"@file"], config.HTTP.Routers[host+"-tls@file"] = plain, &secure
	}
	w.gateway.Apply(config, nil)
	return w
}

// server starts a server that does what the path says, and returns its URL.
func (w *faultWorld) server(t *testing.T, scheme string) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			close(w.arrival(r.RequestURI)) // panics if the request comes twice
		}
		switch r.URL.Path {
		case "/read":
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, "read")
		case "/large":
			part := make([]byte, 64<<10)
			for n := 0; n < 1024; n++ {
				if _, err := rw.Write(part); err != nil {
					return
				}
			}
		case "/wait":
			<-r.Context().Done()
		case "/break":
			_, _ = rw.Write(make([]byte, 1<<10))
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(rw, "ok")
		}
	}))
	t.Cleanup(s.Close)
	switch scheme {
	case "https":
		s.EnableHTTP2 = true
		s.StartTLS()
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		return strings.Replace(s.URL, "http://", "h2c://", 1)
	default:
		s.Start()
	}
	return s.URL
}

// faultClient makes a client of a protocol for one connection.
func (w *faultWorld) faultClient(protocol string) (client *http.Client, closes func()) {
	if protocol == "HTTP/3" {
		tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
				return quic.DialAddrEarly(ctx, w.address, t, q)
			}}
		return &http.Client{Transport: tr}, func() { _ = tr.Close() }
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols),
		DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.address)
		}}
	tr.Protocols.SetHTTP1(protocol != "HTTP/2")
	tr.Protocols.SetHTTP2(protocol == "HTTP/2")
	return &http.Client{Transport: tr}, tr.CloseIdleConnections
}

// faultLine is what a line of the access log has of a request.
type faultLine struct {
	RequestPath                     string
	DownstreamStatus, RetryAttempts int
}

// faultLines waits until the log has the lines of n faulty requests, and returns them.
func (w *faultWorld) faultLines(n int) (found []faultLine) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%d lines of faulty requests", n), func() error {
		text, err := os.ReadFile(w.path)
		if err != nil {
			return err
		}
		found = nil
		for line := range strings.Lines(string(text)) {
			var at faultLine
			if err := json.Unmarshal([]byte(line), &at); err == nil && strings.Contains(at.RequestPath, "fault=") {
				found = append(found, at)
			}
		}
		if len(found) < n {
			return fmt.Errorf("there are %d", len(found))
		}
		return nil
	})
	return found
}
