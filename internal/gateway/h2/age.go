package h2

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Aging is a handler that ends an HTTP/2 connection when it reaches MaxRequests or MaxAge, or when Leaves returns true.
// It adds "Connection: close" to a response; net/http then sends GOAWAY instead of that field. The HTTP/1.1 server has
// its own limits.
type Aging struct {
	http.Handler
	// MaxRequests and MaxAge are limits of a connection. 0 means no limit.
	MaxRequests int
	MaxAge      time.Duration
	// Leaves reports whether each response is the last one of its connection.
	Leaves func() bool
}

// age is the age of a connection.
type age struct {
	begun    time.Time
	requests atomic.Int64
}

type ageKey struct{}

// Context is the ConnContext of the http.Server. It contains that of WithTLS.
func (a Aging) Context(ctx context.Context, c net.Conn) context.Context {
	ctx = WithTLS(ctx, c)
	if !a.limited() {
		return ctx
	}
	return context.WithValue(ctx, ageKey{}, &age{begun: time.Now()})
}

func (a Aging) limited() bool { return a.MaxRequests > 0 || a.MaxAge > 0 }

// ServeHTTP implements http.Handler.
func (a Aging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.Leaves() || a.limited() && a.isLast(r) {
		w.Header().Set("Connection", "close")
	}
	a.Handler.ServeHTTP(w, r)
}

// isLast counts the request, and reports whether its connection ends with it.
func (a Aging) isLast(r *http.Request) bool {
	of := r.Context().Value(ageKey{}).(*age)
	n := of.requests.Add(1)
	return a.MaxRequests > 0 && n >= int64(a.MaxRequests) || a.MaxAge > 0 && time.Since(of.begun) >= a.MaxAge
}
