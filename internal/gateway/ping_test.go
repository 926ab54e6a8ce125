package gateway_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// silentServer returns the URL of a server of HTTP/2 that accepts connections and answers nothing.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // SETTINGS; the read fails
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return "h2c://" + l.Addr().String()
}

// TestPingsToServers checks that a server of HTTP/2 that does not answer pings loses its connection.
func TestPingsToServers(t *testing.T) {
	w := newWorld(t, model.Static{Transport: model.ServersTransport{ForwardingTimeouts: model.ForwardingTimeouts{
		ReadIdleTimeout: time.Millisecond, PingTimeout: time.Millisecond}}})
	w.apply(map[string]*model.Router{"r@file": {Rule: "PathPrefix(`/`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": serviceOf(silentServer(t))})
	client := *w.client
	client.Timeout = place.Timeout
	answer, err := client.Get("http://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d, want 502", answer.StatusCode)
	}
}
