package services

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/admission"
	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/forward"
	"fairlead/internal/gateway/middleware/outcome"
)

// mirroring sends copies of requests to other services and ignores their responses.
type mirroring struct {
	service http.Handler
	mirrors []mirror
	// most is the size of the largest body that is copied; negative: no limit.
	most  int64
	body  bool
	count *atomic.Uint64
	// name is that of the service. copies are those of all services.
	name   string
	copies *admission.Copies
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
	if len(chosen) == 0 || forward.Upgrades(r) {
		m.service.ServeHTTP(w, r)
		return
	}
	kept := &admission.Body{Copies: m.copies}
	ok := m.keep(kept, r)
	for i, c := range chosen {
		// The service changes the request's headers, so the copies are made before.
		chosen[i] = copied(c, r, kept.Data)
	}
	kept.Users.Store(1) // this goroutine
	defer kept.Leave()
	m.service.ServeHTTP(w, r)
	for _, c := range chosen {
		if !ok || !m.copies.Begin(m.name) {
			continue
		}
		kept.Users.Add(1)
		goroutine.Go("send a copy of a request", func() {
			defer m.copies.End()
			defer kept.Leave()
			c.ServeHTTP(&discarded{header: http.Header{}}, nil)
		})
	}
}

// keep reads the request's body into memory, so that it can be sent more than once.
// It returns false if the body is too large; the request is whole in any case.
func (m *mirroring) keep(kept *admission.Body, r *http.Request) bool {
	if !m.body || r.Body == nil || r.Body == http.NoBody {
		return true
	}
	most := m.most
	if most < 0 {
		most = admission.MostCopy
	}
	rest := r.Body
	var err error
	kept.Source = rest
	kept.Data, err = io.ReadAll(io.LimitReader(kept, most+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(kept.Data), rest), rest}
	if err == admission.ErrNoRoom {
		m.copies.Drop(m.name)
	}
	return err == nil && int64(len(kept.Data)) <= most
}

// mirrorTimeout ends a copy whose service does not answer.
const mirrorTimeout = time.Minute

// copied returns a handler that serves a copy of the request.
func copied(to http.Handler, r *http.Request, body []byte) http.Handler {
	c := r.Clone(outcome.WithoutAttempt(context.WithoutCancel(r.Context())))
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
