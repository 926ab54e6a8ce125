package gateway_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestConnectionsAge checks that a client of each protocol gets another connection when its first one has had two
// requests, or is too old, and that no request fails.
func TestConnectionsAge(t *testing.T) {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	for _, s := range []struct {
		name      string
		at        model.EntryPoint
		protocols *http.Protocols
		least     int
	}{
		{"requests of HTTP/1.1", model.EntryPoint{MaxRequests: 2}, one, 2},
		{"requests of HTTP/2", model.EntryPoint{MaxRequests: 2}, twoOnly(), 2},
		{"age of HTTP/2", model.EntryPoint{MaxAge: 1}, twoOnly(), 1},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.at.Name, s.at.Address = "web", "127.0.0.1:0"
			w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{s.at}})
			w.apply(map[string]*model.Router{"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file"}},
				map[string]*model.Service{"s@file": server(t, named("hello"))})
			transport := &http.Transport{Protocols: s.protocols}
			defer transport.CloseIdleConnections()
			asked := 0
			eventually(t, "another connection", func() error {
				reused := w.ask(transport)
				if asked++; asked > 1 && !reused {
					return nil
				}
				return errors.New("the client still has its first connection")
			})
			if asked <= s.least {
				t.Errorf("the first connection ended after %d requests, want %d", asked-1, s.least)
			}
		})
	}
}

// ask sends a request, and returns whether it reused a connection.
func (w *world) ask(transport *http.Transport) (reused bool) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+w.address+"/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})))
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "hello" {
		w.t.Fatalf("%q, %v", body, err)
	}
	return reused
}
