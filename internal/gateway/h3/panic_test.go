package h3

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// TestPanicsEndOneConnection lets the handshake, the begin and a handler of connections panic: the
// connection that was there before is served.
func TestPanicsEndOneConnection(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var mistake atomic.Pointer[string]
	fails := func(where string) {
		if m := mistake.Load(); m != nil && *m == where {
			panic("a mistake in " + where)
		}
	}
	s, err := Listen(Config{Socket: socket, MaxStreams: 10, TLS: &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			fails("handshake")
			return &tls.Config{Certificates: certified.TLS.Certificates}, nil
		}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fails("handler")
			_, _ = io.WriteString(w, "served")
		}),
		Enter: func(*quic.Conn) (heard, leave func()) {
			fails("begin")
			return func() {}, func() {}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	client := func() *http.Client {
		transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
				return quic.DialAddrEarly(ctx, socket.LocalAddr().String(), t, q)
			}}
		t.Cleanup(func() { _ = transport.Close() })
		return &http.Client{Transport: transport}
	}
	good := client()
	ask := func(c *http.Client) error {
		answer, err := c.Get("https://a.test/")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for _, where := range []string{"none", "handshake", "begin", "handler"} {
		if err := ask(good); err != nil {
			t.Fatalf("before a mistake in %s: %v", where, err)
		}
		mistake.Store(&where)
		if err := ask(client()); err == nil && where != "none" {
			t.Errorf("a mistake in %s has not ended the request", where)
		}
		mistake.Store(nil)
	}
	if err := ask(good); err != nil {
		t.Error(err)
	}
	_ = s.Close()
	if err := <-ended; err != http.ErrServerClosed {
		t.Errorf("Serve returned %v", err)
	}
}
