package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// Leave makes the gateway end when another process serves the same sockets: it accepts no
// connection any more and completes those that it has. Each gets one more response, with
// "Connection: close" (HTTP/2: GOAWAY); a connection without a request is closed after
// the grace time. Requests in progress and upgraded connections last as long as they
// need, or until Serve's context ends.
func (g *Gateway) Leave() { g.leave.Do(func() { close(g.left) }) }

// drain completes the connections after Leave.
func (g *Gateway) drain(ctx context.Context, all []*listening) {
	g.last.Store(true)
	for _, at := range all {
		_ = at.accept.leave() // fails only if it is closed
		at.http1.Drain()
		if at.http3 != nil {
			// The other process reads the packets now.
			_ = at.http3.Close()
		}
	}
	grace := time.NewTimer(g.grace())
	defer grace.Stop()
	select {
	case <-g.open.ended():
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
	case <-g.open.ended():
	case <-ctx.Done():
	}
}

// terminate makes /ping answer that the gateway ends, while it still accepts requests for the
// time that the entry points define (requestAcceptGraceTimeout). Hurry and Leave end it early,
// and so does an entry point that fails.
func (g *Gateway) terminate(failed <-chan error) error {
	g.terminating.Store(true)
	most := time.Duration(0)
	for _, e := range g.static.EntryPoints {
		most = max(most, e.Timeouts.AcceptGrace)
	}
	accepting := time.NewTimer(most)
	defer accepting.Stop()
	select {
	case <-accepting.C:
	case <-g.hurried:
	case <-g.left:
	case err := <-failed:
		return err
	}
	return nil
}

// Hurry makes a gateway that is about to end accept no more requests at once. Those that it
// has complete within the grace time.
func (g *Gateway) Hurry() { g.hurry.Do(func() { close(g.hurried) }) }

// ping answers 200, or the terminating status while the gateway ends.
func (g *Gateway) ping(w http.ResponseWriter, _ *http.Request) {
	if g.terminating.Load() {
		w.WriteHeader(cmp.Or(g.static.Ping.TerminatingStatusCode, http.StatusServiceUnavailable))
		return
	}
	_, _ = w.Write([]byte("OK")) // the client may be gone
}
