package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/model/gateway"
)

// available reports whether a handler has a server that is up.
type available interface{ available() bool }

// up reports whether requests to the handler can succeed as far as checks show.
func up(h http.Handler) bool {
	a, ok := h.(available)
	return !ok || a.available()
}

func (b *balancer) available() bool { return len(b.usable()) > 0 }

// weighted divides requests between services.
type weighted struct {
	services []http.Handler
	values   []string
	cookie   *gateway.Cookie
	turns    *wrr.Turns
}

func newWeighted(name string, value *gateway.Weighted, services []http.Handler, turns *atomic.Uint64) *weighted {
	w := &weighted{services: services, cookie: cookieOf(name, value.Sticky)}
	weights := make([]int, len(services))
	for i, s := range value.Services {
		weights[i] = 1
		if s.Weight != nil {
			weights[i] = *s.Weight
		}
		w.values = append(w.values, s.Name)
	}
	w.turns = wrr.NewTurns(weights, turns)
	return w
}

func (w *weighted) available() bool {
	for _, i := range w.turns.Ring() {
		if up(w.services[i]) {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (w *weighted) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if w.cookie != nil {
		if c, err := r.Cookie(w.cookie.Name); err == nil {
			for i, v := range w.values {
				if v == c.Value && up(w.services[i]) {
					w.services[i].ServeHTTP(rw, r)
					return
				}
			}
		}
	}
	for range w.turns.Ring() {
		i := w.turns.Next()
		if !up(w.services[i]) {
			continue
		}
		if w.cookie != nil {
			http.SetCookie(rw, session(w.cookie, w.values[i]))
		}
		w.services[i].ServeHTTP(rw, r)
		return
	}
	unavailable(rw)
}

// failover sends requests to the fallback while the service has no server that is up.
type failover struct{ service, fallback http.Handler }

func (f *failover) available() bool { return up(f.service) || up(f.fallback) }

// ServeHTTP implements http.Handler.
func (f *failover) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if up(f.service) {
		f.service.ServeHTTP(w, r)
		return
	}
	f.fallback.ServeHTTP(w, r)
}

// mirroring sends copies of requests to other services and ignores their responses.
type mirroring struct {
	service http.Handler
	mirrors []mirror
	// most is the size of the largest body that is copied; negative: no limit.
	most  int64
	body  bool
	count *atomic.Uint64
}

type mirror struct {
	service http.Handler
	percent int
}

func (m *mirroring) available() bool { return up(m.service) }

// ServeHTTP implements http.Handler. It answers from the service, then starts the
// copies: they must not take the service's connections before it.
func (m *mirroring) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := m.count.Add(1)
	var chosen []http.Handler
	for _, to := range m.mirrors {
		if to.percent > 0 && n*uint64(to.percent)/100 != (n-1)*uint64(to.percent)/100 {
			chosen = append(chosen, to.service)
		}
	}
	if len(chosen) == 0 || r.Header.Get("Upgrade") != "" {
		m.service.ServeHTTP(w, r)
		return
	}
	kept, ok := m.keep(r)
	if ok {
		for i, c := range chosen {
			// The service changes the request's headers, so the copies are made before.
			chosen[i] = copied(c, r, kept)
		}
	}
	m.service.ServeHTTP(w, r)
	if ok {
		for _, c := range chosen {
			goroutine.Go("mirror a request", func() { c.ServeHTTP(&discarded{header: http.Header{}}, nil) })
		}
	}
}

// keep reads the request's body into memory, so that it can be sent more than once.
// It returns false if the body is too large; the request is whole in any case.
func (m *mirroring) keep(r *http.Request) ([]byte, bool) {
	if !m.body || r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	const always = 8 << 20 // without a limit of the user's
	most := m.most
	if most < 0 {
		most = always
	}
	kept, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	rest := r.Body
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(kept), rest), rest}
	return kept, err == nil && int64(len(kept)) <= most
}

// mirrorTimeout ends a copy whose service does not answer.
const mirrorTimeout = time.Minute

// copied returns a handler that serves a copy of the request.
func copied(to http.Handler, r *http.Request, body []byte) http.Handler {
	c := r.Clone(context.WithoutCancel(r.Context()))
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ctx, cancel := context.WithTimeout(c.Context(), mirrorTimeout)
		defer cancel()
		to.ServeHTTP(w, c.WithContext(ctx))
	})
}

// discarded is a response without a client.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(int)             {}
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
