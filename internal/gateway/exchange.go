package gateway

import (
	"io"
	"net/http"
	"sync"
	"time"

	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/middleware"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
)

// exchange is a request, its response and what is recorded of them. It is the
// response's writer, so handlers find it without a context, which would cost
// a copy of the request.
type exchange struct {
	http.ResponseWriter
	started time.Time
	// target is as the client sent it.
	target  string
	request rule.Request
	router  *route.Router
	// service and server are those that got the request last.
	service string
	server  *server
	// origin is what the server answered, if the access log needs it. It is nil if no server got the
	// request. hasOrigin and hasHeaders are what the log needs.
	origin                *watch
	hasOrigin, hasHeaders bool
	// took is how long the server took.
	took     time.Duration
	status   int
	written  int64
	attempts int
	// fault is that of the last failure.
	fault middleware.Fault
	// kind and counted are for the metrics: counted requests take a router that is counted. open
	// counts the request while it is in progress.
	kind    metric.Kind
	counted bool
	open    *metric.Open
	// body is the request's as it came, because middlewares may replace it.
	body io.ReadCloser
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// exchangeOf returns the exchange that the writer belongs to.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		switch at := w.(type) {
		case *exchange:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}

// received returns how many bytes of the request's body were read.
func (x *exchange) received() int64 {
	if b, ok := x.body.(interface{ Received() int64 }); ok {
		return b.Received()
	}
	return 0
}

// answer returns what the server answered.
func (x *exchange) answer() accesslog.Origin {
	switch {
	case x.status == http.StatusSwitchingProtocols:
		return accesslog.Origin{Status: x.status}
	case x.origin == nil:
		return accesslog.Origin{}
	}
	return accesslog.Origin{Status: x.origin.status, Size: x.origin.written, Header: x.origin.header}
}

// Fault returns who caused the failure of the request.
func (x *exchange) Fault() middleware.Fault { return x.fault }

// SetFault records who caused the failure of the request.
func (x *exchange) SetFault(f middleware.Fault) { x.fault = f }

// Unwrap lets http.ResponseController find the methods of the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.written += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that the kernel can move a large body.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := io.Copy(x.ResponseWriter, src)
	x.written += n
	return n, err
}

// Flush implements http.Flusher.
func (x *exchange) Flush() {
	if f, ok := x.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
