package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/wire"
)

// result carries the outcome of a request out of the reverse proxy, which has no return value. It is the
// context of the request.
type result struct {
	context.Context
	host string
	err  error
	// request and response are the bodies.
	request, response *followed
}

type resultKey struct{}

// serving makes the reverse proxy panic if the response breaks off, as it does within a server of
// net/http. Otherwise it would return, and a truncated response would look complete.
var serving = new(http.Server)

// Value implements context.Context.
func (r *result) Value(key any) any {
	switch key {
	case resultKey{}:
		return r
	case http.ServerContextKey:
		return serving
	}
	return r.Context.Value(key)
}

// resultOf returns the result of a request that of has sent.
func resultOf(r *http.Request) *result { return r.Context().Value(resultKey{}).(*result) }

// of calls the reverse proxy, and returns how the request has failed. Any error is an *h1.Error. Nothing uses the
// request or the writer afterwards.
func (r *result) of(send func(*http.Request), w http.ResponseWriter, request *http.Request) (failed error) {
	out := request.WithContext(r)
	if request.Body != nil && request.Body != http.NoBody {
		r.request = &followed{ReadCloser: guard(request.Body, w)}
		defer r.request.Close()
		out.Body = r.request
	}
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			failed = r.broken()
		} else if v != nil {
			panic(v)
		}
	}()
	send(out)
	if r.err == nil {
		return nil
	}
	if err := r.request.failure(); err != nil {
		return &wire.Error{Op: "read request body", Err: err, Sent: true, BodyRead: true,
			Client: err != goroutine.ErrPanic}
	}
	return AsError(r.err)
}

// broken returns why the response has broken off: its body could not be read, or the client did not take it.
func (r *result) broken() error {
	if err := r.response.failure(); err != nil {
		return &wire.Error{Op: "read response body", Err: err, Sent: true, BodyRead: true, Started: true}
	}
	return &wire.Error{Op: "write response", Err: errNotTaken, Sent: true, BodyRead: true, Started: true, Client: true}
}

var errNotTaken = errors.New("the client does not take the response")

// follow notes the failures of the response's body. A change of protocols has none.
func (r *result) follow(answer *http.Response) {
	if answer.StatusCode != http.StatusSwitchingProtocols {
		r.response = &followed{ReadCloser: answer.Body}
		answer.Body = r.response
	}
}

// followed is a body that notes why it cannot be read.
type followed struct {
	io.ReadCloser
	closed atomic.Bool
	err    atomic.Pointer[error]
}

// Read implements io.Reader.
func (f *followed) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !f.closed.Load() {
		f.err.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close implements io.Closer. What fails afterwards is no failure of the body.
func (f *followed) Close() error {
	f.closed.Store(true)
	return f.ReadCloser.Close()
}

// failure returns why the body could not be read, nil if that did not fail.
func (f *followed) failure() error {
	if f == nil {
		return nil
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// AsError returns the error as one of a forwarder.
func AsError(err error) *wire.Error {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	return &wire.Error{Op: "forward request", Err: err, Sent: true, BodyRead: true}
}
