package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/gateway"
	model "fairlead/internal/model/gateway"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// pairsOf are the routers of the pairs: the prefix of a path and the middleware behind it. "secure" has a
// server with TLS, "two" one with HTTP/2, and "mirror" sends copies.
var pairsOf = []string{"plain", "secure", "two", "mirror", "retry", "buffering", "auth", "errors", "grpcweb", "chain"}

// pairs runs random pairs of what clients and servers may do. Each request has a marker, of which its body
// and its response consist: a byte of another client is found.
type pairs struct {
	*testing.T
	gateway       *gateway.Gateway
	address       string
	markers, done atomic.Uint64
	services      map[string]*model.Service
	// auth is the URL of the server for forwardAuth.
	auth string
}

// TestPairs runs random pairs for three seconds, or as long as FAIRLEAD_PAIRS says; FAIRLEAD_SEED chooses
// them. No byte of a client may reach another one, no goroutine may panic, and no complete request may stay
// without an answer. `make soak` runs it under the race detector.
func TestPairs(t *testing.T) {
	length, seed := 3*time.Second, uint64(1)
	var err error
	if text := os.Getenv("FAIRLEAD_PAIRS"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("FAIRLEAD_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("seed", seed)
	p := newPairs(t)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var clients sync.WaitGroup
	for n := range uint64(64) {
		random := rand.New(rand.NewPCG(seed, n))
		run := p.raw
		switch n {
		case 60, 61:
			run = p.library(&http.Client{Transport: p.transport()})
		case 62, 63:
			run = p.library(&http.Client{Transport: p.http3()})
		}
		clients.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				run(random)
				p.done.Add(1)
			}
		})
	}
	clients.Go(func() {
		for random := rand.New(rand.NewPCG(seed, 100)); ctx.Err() == nil && !t.Failed(); p.pause(random, 200) {
			p.gateway.Apply(p.config(), nil)
		}
	})
	clients.Wait()
	if p.done.Load() < 50 {
		t.Errorf("%d pairs have ended, want at least 50", p.done.Load())
	}
	t.Log("pairs:", p.done.Load())
}

// newPairs starts the gateway and the servers.
func newPairs(t *testing.T) *pairs {
	p := &pairs{T: t}
	was := slog.Default()
	log := slog.New(faults{t})
	slog.SetDefault(log)
	t.Cleanup(func() { slog.SetDefault(was) })
	static := model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
		HTTP3: &model.HTTP3{AdvertisedPort: 443}}}}
	services := map[string]*model.Service{"plain@file": p.listen(nil), "page@file": p.listen(nil)}
	services["plain@file"].LoadBalancer.PassiveHealthCheck = &model.PassiveHealthCheck{
		FailureWindow: time.Nanosecond, MaxFailedAttempts: 1 << 30}
	two := httptest.NewUnstartedServer(http.HandlerFunc(p.handle))
	two.EnableHTTP2 = true
	two.StartTLS()
	t.Cleanup(two.Close)
	services["two@file"] = serviceOf(two.URL)
	services["secure@file"] = p.listen(two.TLS.Certificates)
	for _, name := range []string{"two@file", "secure@file"} {
		services[name].LoadBalancer.ServersTransport = "t@file"
	}
	services["mirror@file"] = &model.Service{Mirroring: &model.Mirroring{Service: "plain@file",
		Mirrors: []model.Mirror{{Name: "page@file", Percent: 30}}}}
	auth := httptest.NewServer(http.HandlerFunc(p.authenticate))
	t.Cleanup(auth.Close)
	w := newLoggedWorld(t, static, log)
	p.gateway, p.address = w.gateway, w.address
	p.set(services, auth.URL)
	return p
}

// faults fails the test if a panic is logged.
type faults struct{ t *testing.T }

func (f faults) Enabled(context.Context, slog.Level) bool { return true }
func (f faults) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f faults) WithGroup(string) slog.Handler            { return f }
func (f faults) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "panic" || a.Key == "stack" {
			f.t.Errorf("%s: %v", r.Message, a.Value)
		}
		return true
	})
	return nil
}

// marker returns a new marker.
func (p *pairs) marker() string { return fmt.Sprintf("<%06x>", p.markers.Add(1)&0xffffff) }

// filled returns n bytes of the marker.
func filled(marker string, n int) []byte {
	return bytes.Repeat([]byte(marker), n/len(marker)+1)[:n]
}

// foreign is a reader's check: it returns an error at the first byte that is not the marker's.
type foreign struct {
	from   io.Reader
	marker string
	n      int
	wrong  func(string)
}

func (f *foreign) Read(b []byte) (int, error) {
	n, err := f.from.Read(b)
	for _, got := range b[:n] {
		if got != f.marker[f.n%len(f.marker)] {
			f.wrong(fmt.Sprintf("got %.60q in byte %d of %s", b[:n], f.n, f.marker))
			return 0, io.ErrUnexpectedEOF
		}
		f.n++
	}
	return n, err
}

// pause waits a random time, up to so many milliseconds.
func (p *pairs) pause(random *rand.Rand, most int) {
	select {
	case <-time.After(time.Duration(random.IntN(most*1000)) * time.Microsecond):
	case <-p.Context().Done():
	}
}

// transport speaks HTTP/2 to the gateway.
func (p *pairs) transport() http.RoundTripper {
	t := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, p.address)
		}}
	p.Cleanup(t.CloseIdleConnections)
	return t
}

// http3 speaks HTTP/3 to the gateway.
func (p *pairs) http3() http.RoundTripper {
	t := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddrEarly(ctx, p.address, t, q)
		}}
	p.Cleanup(func() { _ = t.Close() })
	return t
}
