package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/entries"
	model "fairlead/internal/model/gateway"
)

// begin runs a gateway at a copy of the sockets, with a router for all requests.
func begin(t *testing.T, l *net.TCPListener, from *gateway.Gateway) (*gateway.Gateway, <-chan error) {
	t.Helper()
	g, err := gateway.New(model.Static{EntryPoints: []model.EntryPoint{{Name: "web",
		Timeouts: model.Timeouts{Grace: new(time.Millisecond)}}}, Default: []string{"web"}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if from != nil {
		g.Inherit(from.Handover())
	}
	g.Apply(&model.Config{HTTP: model.HTTP{Routers: map[string]*model.Router{
		"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file"},
		"t@file": {Rule: "PathPrefix(`/`)", Service: "s@file", TLS: &model.RouterTLS{}}},
		Services: map[string]*model.Service{"s@file": server(t, named("hello"))}}}, nil)
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	copied, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, entries.Sockets{"web": {TCP: copied.(*net.TCPListener)}}) }()
	t.Cleanup(cancel)
	return g, ended
}

// TestLeave replaces a gateway by another one at the same socket: the old one ends although
// its clients keep their connections, and sessions of TLS go on.
func TestLeave(t *testing.T) {
	all, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	l := all.(*net.TCPListener)
	for _, kind := range []string{"http/1.1", "h2"} {
		t.Run(kind, func(t *testing.T) { testLeave(t, l, kind) })
	}
}

func testLeave(t *testing.T, l *net.TCPListener, kind string) {
	old, ended := begin(t, l, nil)
	sessions := tls.NewLRUClientSessionCache(1)
	ask := func(c *http.Client) (resumed bool) {
		t.Helper()
		answer, err := c.Get("https://" + l.Addr().String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "hello" || answer.ProtoMajor !=
			map[string]int{"http/1.1": 1, "h2": 2}[kind] {
			t.Fatalf("%s %q %v", answer.Proto, body, err)
		}
		return answer.TLS.DidResume
	}
	client := func() *http.Client {
		tr := &http.Transport{ForceAttemptHTTP2: kind == "h2", TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			ClientSessionCache: sessions, NextProtos: []string{kind}}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	ask(client())
	next, nextEnded := begin(t, l, old)
	old.Leave()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !ask(client()) {
		t.Error("the new gateway does not resume the session of the old one")
	}
	next.Leave()
	if err := <-nextEnded; err != nil {
		t.Fatal(err)
	}
}

// TestAcceptGrace stops a gateway that accepts requests for a long time still: it serves them,
// reports at /ping that it ends, and Hurry and Leave end that time.
func TestAcceptGrace(t *testing.T) {
	for name, end := range map[string]func(*gateway.Gateway){"Hurry": (*gateway.Gateway).Hurry,
		"Leave": (*gateway.Gateway).Leave} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, model.Static{Ping: &model.Ping{EntryPoint: "web"}, EntryPoints: []model.EntryPoint{{
				Name: "web", Address: "127.0.0.1:0", Timeouts: model.Timeouts{AcceptGrace: time.Hour}}}})
			if status, _ := w.get("http://a.test/ping"); status != http.StatusOK {
				t.Fatalf("ping: %d", status)
			}
			w.stop()
			eventually(t, "ping shows the end", func() error {
				if status, _ := w.get("http://a.test/ping"); status != http.StatusServiceUnavailable {
					return fmt.Errorf("status %d", status)
				}
				return nil
			})
			end(w.gateway) // newWorld waits for the end
		})
	}
}
