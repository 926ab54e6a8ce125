package gateway

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/model/gateway"

	"github.com/prometheus/client_golang/prometheus"
)

type faultyBody struct{ io.ReadCloser }

func (faultyBody) Read([]byte) (int, error) { panic("a mistake in Read") }

// faultyWriter panics when it writes interim responses or parts.
type faultyWriter struct{ http.ResponseWriter }

func (w faultyWriter) WriteHeader(status int) {
	if status < 200 {
		panic("a mistake in WriteHeader")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (faultyWriter) FlushError() error { panic("a mistake in Flush") }

// TestPanicsOnGoroutinesOfLibraries lets a body and a response panic where net/http uses them on
// goroutines of its own.
func TestPanicsOnGoroutinesOfLibraries(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(w, r.Body)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "more")
	}))
	defer s.Close()
	to, _ := url.Parse(s.URL)
	l, err := newLibrary(to, &gateway.ServersTransport{InsecureSkipVerify: true}, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", faultyBody{io.NopCloser(bytes.NewReader(nil))})
	r.ContentLength = 10
	if err := l.Forward(out, r, "a.test"); err == nil {
		t.Error("a body that panics is no error")
	}
	out = httptest.NewRecorder()
	r = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte("text")))
	err = l.Forward(faultyWriter{out}, r, "a.test")
	if err != nil || out.Code != http.StatusOK {
		t.Errorf("a response whose parts cannot be flushed: %v, status %d", err, out.Code)
	}
}

// TestPanicsOfMirrors lets a copy of a request panic: the client has its response.
func TestPanicsOfMirrors(t *testing.T) {
	copied := make(chan struct{})
	m := &mirroring{service: http.NotFoundHandler(), count: new(atomic.Uint64), copies: new(admission.Copies),
		mirrors: []mirror{{percent: 100,
			service: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				defer close(copied)
				panic("a mistake")
			})}}}
	out := httptest.NewRecorder()
	m.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/", nil))
	if <-copied; out.Code != http.StatusNotFound {
		t.Errorf("status %d", out.Code)
	}
}

// TestPanicsOfOpenings lets the first bytes of a connection panic: it ends, and is not counted any more.
func TestPanicsOfOpenings(t *testing.T) {
	for name, panics := range map[string]func(*splitter){
		"PROXY header": func(s *splitter) { s.proxied = func(net.Conn) (net.Conn, error) { panic("a mistake") } },
		"TCP router":   func(s *splitter) { s.stream = func(net.Conn, func()) bool { panic("a mistake") } },
	} {
		t.Run(name, func(t *testing.T) {
			g, err := New(gateway.Static{}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			l := g.newLimits(gateway.EntryPoint{Name: "web"}, nil)
			s := &splitter{accepting: &accepting{open: &g.open}, limits: l,
				proxied: func(c net.Conn) (net.Conn, error) { return c, nil }}
			panics(s)
			near, far := net.Pipe()
			g.open.add(1)
			s.split(near)
			if _, err := far.Read(make([]byte, 1)); err != io.EOF || l.Open() != 0 {
				t.Errorf("the connection: %v, %d are counted", err, l.Open())
			}
			select {
			case <-g.open.ended():
			default:
				t.Error("the connection counts as open")
			}
		})
	}
}

// TestPanicOfMetrics: the registry collects on goroutines of its own.
func TestPanicOfMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := &Gateway{kept: newKept()}
	g.kept.services["s"] = nil
	registry.MustRegister(serversUp{g})
	_, _ = registry.Gather() // it must return
}
