package entries

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// Leave makes Serve return when another process serves the same sockets and the last connection has ended.
func (p *Points) Leave() { p.leave.Do(func() { close(p.left) }) }

// drain completes the connections after Leave.
func (p *Points) drain(ctx context.Context, all []*listening) {
	p.last.Store(true)
	for _, at := range all {
		_ = at.accept.leave() // fails only if it is closed
		at.http1.Drain()
		if at.http3 != nil {
			// The other process reads the packets now.
			_ = at.http3.Close()
		}
	}
	grace := time.NewTimer(p.grace())
	defer grace.Stop()
	select {
	case <-p.open.ended():
		return
	case <-ctx.Done():
		return
	case <-grace.C:
	}
	for _, at := range all {
		goroutine.Go("shut down HTTP/1.1", func() { _ = at.http1.Shutdown(ctx) }) // ends with ctx, or the last request
		goroutine.Go("shut down HTTP/2", func() { _ = at.http2.Shutdown(ctx) })
	}
	select {
	case <-p.open.ended():
	case <-ctx.Done():
	}
}

// terminate makes /ping answer that the gateway ends, while it still accepts requests for the
// time that the entry points define (requestAcceptGraceTimeout). Hurry and Leave end it early,
// and so does an entry point that fails.
func (p *Points) terminate(failed <-chan error) error {
	p.terminating.Store(true)
	most := time.Duration(0)
	for _, e := range p.static.EntryPoints {
		most = max(most, e.Timeouts.AcceptGrace)
	}
	accepting := time.NewTimer(most)
	defer accepting.Stop()
	select {
	case <-accepting.C:
	case <-p.hurried:
	case <-p.left:
	case err := <-failed:
		return err
	}
	return nil
}

// Hurry makes a gateway that is about to end accept no more requests at once.
func (p *Points) Hurry() { p.hurry.Do(func() { close(p.hurried) }) }

// Ping answers 200, or the terminating status while the gateway ends.
func (p *Points) Ping(w http.ResponseWriter, _ *http.Request) {
	if p.terminating.Load() {
		w.WriteHeader(cmp.Or(p.static.Ping.TerminatingStatusCode, http.StatusServiceUnavailable))
		return
	}
	_, _ = w.Write([]byte("OK")) // the client may be gone
}
