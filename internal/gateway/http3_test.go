package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// newHTTP3 starts a gateway with HTTP/3, and returns it with a client that speaks only that.
func newHTTP3(t *testing.T, at model.EntryPoint) (*world, *http.Client) {
	at.HTTP3 = &model.HTTP3{AdvertisedPort: 4430}
	w := exposed(t, at, nil)
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddrEarly(ctx, w.address, t, q)
		}}
	t.Cleanup(func() { _ = transport.Close() })
	return w, &http.Client{Transport: transport}
}

// TestHTTP3 sends requests over HTTP/3: the routers and servers are those of the other
// protocols, which announce it.
func TestHTTP3(t *testing.T) {
	w, client := newHTTP3(t, model.EntryPoint{})
	large := strings.Repeat("x", 3<<20)
	for _, s := range []struct{ method, url, body, want string }{
		{"GET", "https://a.test/x?y", "", "GET /x?y\n"},
		{"GET", "https://a.test/x", "", "X-Forwarded-Proto: https\n"},
		{"GET", "https://a.test/x", "", `body "", error <nil>`},
		{"POST", "https://a.test/", "hello", `body "hello", error <nil>`},
		{"POST", "https://a.test/", large, fmt.Sprintf("body %q, error <nil>", large)},
		{"GET", "https://b.test/", "", "404 page not found"},
	} {
		r, err := http.NewRequest(s.method, s.url, strings.NewReader(s.body))
		if err != nil {
			t.Fatal(err)
		}
		if s.body == "" {
			r.Body = nil
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", s.method, s.url, err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.ProtoMajor != 3 || !strings.Contains(string(body), s.want) ||
			strings.Contains(string(body), "Transfer-Encoding") {
			t.Errorf("%s %s: %s, error %v, got %.300q, want %.100q", s.method, s.url, answer.Proto, err, body, s.want)
		}
	}
	got := w.send(last)
	if strings.Contains(got, "Alt-Svc") {
		t.Errorf("a response without TLS announces HTTP/3: %q", got)
	}
	c, err := tls.Dial("tcp", w.address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, last)
	all, _ := io.ReadAll(c)
	if want := "Alt-Svc: h3=\":4430\"; ma=2592000\r\n"; !strings.Contains(string(all), want) {
		t.Errorf("the response over TLS is %q, want %q", all, want)
	}
}

// TestHTTP3Limits checks that connections of QUIC and TCP count together.
func TestHTTP3Limits(t *testing.T) {
	w, client := newHTTP3(t, model.EntryPoint{MaxConnectionsPerClient: 1})
	answer, err := client.Get("https://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "a.test", NextProtos: []string{"h3"}}
	second, err := quic.DialAddr(t.Context(), w.address, config, nil)
	if err == nil {
		<-second.Context().Done()
		err = context.Cause(second.Context())
	}
	if !strings.Contains(err.Error(), "0x107") {
		t.Errorf("the second connection of a client ended with %v, want H3_EXCESSIVE_LOAD", err)
	}
	if c := w.request(); c != nil {
		t.Error("a connection of TCP beside one of QUIC was accepted")
	}
	_ = client.Transport.(*http3.Transport).Close()
	eventually(t, "a connection after the end of the first", func() error {
		return firstError(w.request() != nil)
	})
}

func firstError(ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("it is refused")
}
