package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// limited starts a gateway with limits of connections, and a service.
func limited(t *testing.T, at model.EntryPoint) *world {
	at.Name, at.Address = "web", "127.0.0.1:0"
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{at}, Metrics: &model.Metrics{EntryPoint: "web"}})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"},
		"tls@file": {Rule: "Host(`a.test`)", Service: "s@file", TLS: &model.RouterTLS{}}},
		map[string]*model.Service{"s@file": server(t, named("hello"))})
	return w
}

// request sends a request on a new connection. It returns the connection if the gateway
// accepts it, nil if it closes it.
func (w *world) request() net.Conn {
	w.t.Helper()
	c := w.dialRefused()
	if c == nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(place.Timeout))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	answer.Body.Close()
	return c
}

// eventually repeats an attempt that fails at first: until the gateway has seen the end of the last connection, or
// because the process had no CPU time.
func eventually(t *testing.T, name string, attempt func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := attempt()
		if err == nil {
			return
		}
		if time.Since(began) > place.Timeout {
			t.Fatalf("%s: %v", name, err)
		}
		time.Sleep(time.Millisecond) // the gateway needs the CPU
	}
}

func TestLimitsOfConnections(t *testing.T) {
	for _, s := range []struct {
		name    string
		at      model.EntryPoint
		refused string
	}{
		{"of all", model.EntryPoint{MaxConnections: 2, MaxConnectionsPerClient: 3}, "maxConnections"},
		{"half of all", model.EntryPoint{MaxConnections: 4}, "maxConnectionsPerClient"},
		{"of a client", model.EntryPoint{MaxConnectionsPerClient: 2}, "maxConnectionsPerClient"},
		{"not of a trusted proxy", model.EntryPoint{MaxConnectionsPerClient: 2,
			TrustedProxies: []string{"127.0.0.1"}}, ""},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := limited(t, s.at)
			first, second := w.request(), w.request()
			if first == nil || second == nil {
				t.Fatal("a connection below the limit was refused")
			}
			if third := w.request(); (third == nil) != (s.refused != "") {
				t.Fatalf("a connection above the limit: %v", third)
			}
			first.Close()
			second.Close()
			want := `fairlead_gateway_refused_connections_total{entrypoint="web",limit="` + s.refused + `"}`
			eventually(t, "the metrics after the connections have ended", func() error {
				answer, err := w.client.Get("http://x.test/metrics")
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				metrics, err := io.ReadAll(answer.Body)
				if err == nil && s.refused != "" && !strings.Contains(string(metrics), want) {
					t.Errorf("the metrics lack %s", want)
				}
				return err
			})
		})
	}
}

// TestLimitsForgetConnections ends connections of each kind: with a limit of one, the next
// one is accepted only if the gateway has forgotten the last.
func TestLimitsForgetConnections(t *testing.T) {
	w := limited(t, model.EntryPoint{MaxConnections: 1})
	for range 2 {
		for _, kind := range []struct {
			name string
			use  func(net.Conn) error
		}{
			{"HTTP/1.1", func(c net.Conn) error { return roundTrip(c, "http", nil) }},
			{"TLS", func(c net.Conn) error { return roundTrip(c, "https", nil) }},
			{"HTTP/2", func(c net.Conn) error { return roundTrip(c, "https", twoOnly()) }},
			{"h2c", func(c net.Conn) error { return roundTrip(c, "http", twoOnly()) }},
			{"no handshake", func(c net.Conn) error {
				_, err := io.WriteString(c, "\x16\x03\x01\x00\x01x")
				return err
			}},
			{"silent", func(net.Conn) error { return nil }},
		} {
			eventually(t, kind.name, func() error {
				c, err := net.Dial("tcp", w.address)
				if err != nil {
					return err
				}
				defer c.Close()
				return kind.use(c)
			})
		}
	}
}

// twoOnly are the protocols of a client of HTTP/2.
func twoOnly() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// roundTrip sends a request on a connection.
func roundTrip(c net.Conn, scheme string, protocols *http.Protocols) error {
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, scheme+"://a.test/", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(r)
	if err == nil {
		answer.Body.Close()
	}
	return err
}

// TestSilentConnectionsGiveWay fills an entry point with silent clients of each kind: a client with a request is
// served, and the oldest silent connection ends. Connections with a request stay.
func TestSilentConnectionsGiveWay(t *testing.T) {
	const most = 6
	for name, begin := range map[string]string{
		"nothing": "", "a part of a head": "GET / HTTP/1.1\r\nHost: a.test\r\n",
		"a part of a handshake": "\x16\x03\x01\x02",
		"the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"a part of HEADERS": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
			"\x00\x00\x20\x01\x04\x00\x00\x00\x01\x82",
	} {
		t.Run(name, func(t *testing.T) {
			w := limited(t, model.EntryPoint{MaxConnections: most, MaxConnectionsPerClient: 2 * most})
			first := w.request()
			if first == nil {
				t.Fatal("the first connection was refused")
			}
			var silent []net.Conn
			for range most - 1 {
				c := w.connect()
				_, _ = io.WriteString(c, begin)
				silent = append(silent, c)
			}
			for range silent {
				if w.request() == nil {
					t.Fatal("a client with a request is refused")
				}
			}
			for _, c := range silent {
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a silent connection does not end")
				}
			}
			if w.request() != nil {
				t.Error("a connection replaces one with a request")
			}
			_, _ = io.WriteString(first, last)
			if answer, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || answer.StatusCode != 200 {
				t.Errorf("the first connection: %v", err)
			}
		})
	}
}
