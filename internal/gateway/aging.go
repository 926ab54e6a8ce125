package gateway

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"fairlead/internal/gateway/h2"
	"fairlead/internal/model/gateway"
)

// aging ends connections of HTTP/2 with GOAWAY: after Leave, and when they have had so many requests or have
// existed for so long as the entry point allows. Net/http sends GOAWAY for "Connection: close". The server of
// HTTP/1.1 has limits of its own.
type aging struct {
	http.Handler
	gateway *Gateway
	// most and longest are the requests and the age of a connection. 0 means no limit.
	most    int64
	longest time.Duration
}

func (g *Gateway) newAging(value gateway.EntryPoint, h http.Handler) aging {
	return aging{h, g, int64(value.MaxRequests), value.MaxAge}
}

// age is the age of a connection.
type age struct {
	begun    time.Time
	requests atomic.Int64
}

type ageKey struct{}

// context is the ConnContext of the http.Server.
func (a aging) context(ctx context.Context, c net.Conn) context.Context {
	ctx = h2.WithTLS(ctx, c)
	if a.most == 0 && a.longest == 0 {
		return ctx
	}
	return context.WithValue(ctx, ageKey{}, &age{begun: time.Now()})
}

// ServeHTTP implements http.Handler.
func (a aging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.gateway.last.Load() || a.isLast(r) {
		w.Header().Set("Connection", "close")
	}
	a.Handler.ServeHTTP(w, r)
}

// isLast counts the request, and reports whether its connection ends with it.
func (a aging) isLast(r *http.Request) bool {
	if a.most == 0 && a.longest == 0 {
		return false
	}
	of := r.Context().Value(ageKey{}).(*age)
	n := of.requests.Add(1)
	return a.most > 0 && n >= a.most || a.longest > 0 && time.Since(of.begun) >= a.longest
}
