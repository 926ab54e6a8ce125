package observe

import (
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
)

// Exchange is a request, its response and what is recorded of them. It is the
// response's writer, so handlers find it without a context, which would cost
// a copy of the request.
type Exchange struct {
	http.ResponseWriter
	// Request is what rules see of the request.
	Request rule.Request
	// Router is the one that takes the request, nil if none does.
	Router  *route.Router
	started time.Time
	// target is as the client sent it.
	target string
	// service and server are those that got the request last.
	service string
	server  *url.URL
	// origin is what the server answered, if the access log needs it. It is nil if no server got the
	// request. hasOrigin and hasHeaders are what the log needs.
	origin                *Response
	hasOrigin, hasHeaders bool
	// took is how long the server took.
	took     time.Duration
	status   int
	written  int64
	attempts int
	// fault is that of the last failure.
	fault outcome.Fault
	// kind and counted are for the metrics: counted requests take a router that is counted. open
	// counts the request while it is in progress.
	kind    metric.Kind
	counted bool
	open    *metric.Open
	// body is the request's as it came, because middlewares may replace it.
	body io.ReadCloser
}

var exchanges = sync.Pool{New: func() any { return new(Exchange) }}

// ExchangeOf returns the exchange that the writer belongs to, nil if it belongs to none: a copy of a request has none.
func ExchangeOf(w http.ResponseWriter) *Exchange {
	for {
		switch at := w.(type) {
		case *Exchange:
			return at
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return nil
		}
	}
}

// Send records that a server of a service gets the request. open counts the service's requests in progress; it is nil
// if the metrics lack them.
func (x *Exchange) Send(service string, server *url.URL, open *metric.Open) {
	x.service, x.server, x.origin, x.fault = service, server, nil, outcome.NoFault
	if x.attempts++; x.counted {
		open.Begin(x.kind)
	}
}

// Sent records that the server has answered or failed, and how long it took.
func (x *Exchange) Sent(open *metric.Open, took time.Duration) {
	if x.took = took; x.counted {
		open.End(x.kind)
	}
}

// Watch returns the writer for what a server answers from began on. It is nil if neither the caller wants to know what
// that is, nor the access log. x may be nil.
func (x *Exchange) Watch(w http.ResponseWriter, r *http.Request, began time.Time, wanted bool) *Response {
	logged := x != nil && x.hasOrigin
	if !wanted && !logged {
		return nil
	}
	seen := &Response{ResponseWriter: w, began: began, request: r}
	if logged {
		seen.copies, x.origin = x.hasHeaders, seen
	}
	return seen
}

// Begun reports whether the response has begun.
func (x *Exchange) Begun() bool { return x.status != 0 }

// received returns how many bytes of the request's body were read.
func (x *Exchange) received() int64 {
	if b, ok := x.body.(interface{ Received() int64 }); ok {
		return b.Received()
	}
	return 0
}

// answer returns what the server answered.
func (x *Exchange) answer() accesslog.Origin {
	switch {
	case x.status == http.StatusSwitchingProtocols:
		return accesslog.Origin{Status: x.status}
	case x.origin == nil:
		return accesslog.Origin{}
	}
	return accesslog.Origin{Status: x.origin.Status, Size: x.origin.written, Header: x.origin.header}
}

// Fault returns who caused the failure of the request.
func (x *Exchange) Fault() outcome.Fault { return x.fault }

// SetFault records who caused the failure of the request.
func (x *Exchange) SetFault(f outcome.Fault) { x.fault = f }

// Unwrap lets http.ResponseController find the methods of the connection.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (x *Exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (x *Exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	x.written += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that the kernel can move a large body.
func (x *Exchange) ReadFrom(src io.Reader) (int64, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := io.Copy(x.ResponseWriter, src)
	x.written += n
	return n, err
}

// Flush implements http.Flusher.
func (x *Exchange) Flush() {
	if f, ok := x.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
