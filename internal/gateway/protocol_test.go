package gateway_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestUpgrade checks that both sides can talk after an upgrade, as WebSocket does.
func TestUpgrade(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, r *http.Request) {
			c, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
				r.Header.Get("Upgrade")+"\r\n\r\n")
			_, _ = io.Copy(c, buffered)
		})})
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%s %v", answer.Status, answer.Header)
	}
	for _, line := range []string{"one\n", "two\n"} {
		_, _ = io.WriteString(c, line)
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Errorf("the server sent %q, %v, want %q", got, err, line)
		}
	}
}

// TestTrailers sends a request over HTTP/2 to a server that speaks HTTP/2 without TLS, as
// gRPC does: the response's trailer must arrive.
func TestTrailers(t *testing.T) {
	both := new(http.Protocols)
	both.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "Grpc-Status")
		_, _ = io.Copy(rw, r.Body)
		rw.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = both
	s.Start()
	t.Cleanup(s.Close)
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": serviceOf(strings.Replace(s.URL, "http:", "h2c:", 1))})
	client := &http.Client{Transport: &http.Transport{Protocols: both,
		DialContext: w.client.Transport.(*http.Transport).DialContext}}
	r, err := http.NewRequest(http.MethodPost, "http://a.test/", strings.NewReader("message"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "message" || answer.Trailer.Get("Grpc-Status") != "0" || answer.ProtoMajor != 2 {
		t.Errorf("%q, %v, trailer %v, %s", body, err, answer.Trailer, answer.Proto)
	}
}
