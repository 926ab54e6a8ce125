// Package body has the middlewares that change bodies or keep them: buffering, compress, contentType, grpcWeb.
package body

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/gateway/middleware/outcome"
	"fairlead/internal/model/gateway"
)

// maxBufferedAttempts is the limit of attempts, whatever the retry expression says.
const maxBufferedAttempts = 10

// buffering reads whole bodies before it sends them on.
type buffering struct {
	*gateway.Buffering
	retry func(bufferedAttempt) bool
}

// bufferedAttempt is what a retry expression sees.
type bufferedAttempt struct{ number, status int }

// retryFunctions are those of retry expressions. A network error is a 502 or 504 of the
// proxy.
var retryFunctions = map[string]base.Function[bufferedAttempt]{
	"Attempts":       {Number: func(a bufferedAttempt, _ []float64) float64 { return float64(a.number) }},
	"ResponseCode":   {Number: func(a bufferedAttempt, _ []float64) float64 { return float64(a.status) }},
	"IsNetworkError": {Truth: func(a bufferedAttempt) bool { return a.status == 502 || a.status == 504 }},
}

// NewBuffering reads whole bodies of requests and responses before it sends them on. A
// larger request is answered with 413, a larger response with 500. A request to change the
// protocol is buffered too: its header could evade the limit. After the change, nothing is.
func NewBuffering(_ *base.Builder, v *gateway.Buffering) (base.Func, error) {
	b := &buffering{Buffering: v, retry: func(bufferedAttempt) bool { return false }}
	if min(v.MaxRequestBodyBytes, v.MemRequestBodyBytes, v.MaxResponseBodyBytes, v.MemResponseBodyBytes) < 0 {
		return nil, errors.New("sizes must not be negative: 0 means no limit")
	}
	if v.RetryExpression != "" {
		var err error
		if b.retry, err = base.ParseExpression(v.RetryExpression, retryFunctions); err != nil {
			return nil, err
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, next) })
	}, nil
}

// newSpill returns a spill with the default of memory.
func newSpill(memory, limit int64) *spill {
	if memory == 0 {
		memory = 1 << 20
	}
	return &spill{memory: memory, limit: limit}
}

func (b *buffering) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if b.MaxRequestBodyBytes > 0 && r.ContentLength > b.MaxRequestBodyBytes {
		base.Refuse(w, http.StatusRequestEntityTooLarge)
		return
	}
	body := newSpill(b.MemRequestBodyBytes, b.MaxRequestBodyBytes)
	defer body.close()
	if status := store(body, r.Body, w); status != 0 {
		base.Refuse(w, status)
		return
	}
	for number := 1; ; number++ {
		again := r.Clone(r.Context())
		again.ContentLength, again.TransferEncoding = body.size, nil
		again.Body = http.NoBody
		if body.size > 0 {
			again.Body = io.NopCloser(body.reader())
		}
		out := &bufferWriter{ResponseWriter: w, header: w.Header().Clone(),
			body: newSpill(b.MemResponseBodyBytes, b.MaxResponseBodyBytes)}
		if b.attempt(out, again, next, number) {
			return
		}
	}
}

// store stores a request's body. If that fails, it records whose fault it is, and returns the status.
func store(body *spill, from io.Reader, w http.ResponseWriter) int {
	source := &failingReader{Reader: from}
	_, err := io.Copy(body, source)
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return 0
	case errors.Is(err, base.ErrTooLarge):
		outcome.Blame(w, outcome.ClientFault)
		return http.StatusRequestEntityTooLarge
	case source.err == nil:
		outcome.Blame(w, outcome.GatewayFault) // for example, no space is left
		return http.StatusInternalServerError
	}
	outcome.Blame(w, outcome.ClientFault)
	if errors.As(err, &timeout) && timeout.Timeout() {
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// failingReader notes the failure of a reader.
type failingReader struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (f *failingReader) Read(p []byte) (n int, err error) {
	if n, err = f.Reader.Read(p); err != io.EOF {
		f.err = err
	}
	return n, err
}

// attempt returns whether the client has its response.
func (b *buffering) attempt(out *bufferWriter, r *http.Request, next http.Handler, number int) bool {
	defer out.body.close()
	out.run(next, r)
	if number < maxBufferedAttempts && !out.hijacked && r.Context().Err() == nil &&
		b.retry(bufferedAttempt{number, out.status}) {
		return false
	}
	out.send()
	return true
}

// bufferWriter stores a response.
type bufferWriter struct {
	http.ResponseWriter
	header   http.Header
	status   int
	body     *spill
	err      error
	hijacked bool
}

// run calls the handler. A handler that aborts because the body does not fit any more is
// finished.
func (w *bufferWriter) run(next http.Handler, r *http.Request) {
	defer func() {
		if w.err == nil {
			return
		}
		w.status = http.StatusInternalServerError
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
			panic(cause)
		}
	}()
	next.ServeHTTP(w, r)
}

// Unwrap returns the writer below: the request and its answer belong to the client's exchange.
func (w *bufferWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header returns the stored header.
func (w *bufferWriter) Header() http.Header { return w.header }

// WriteHeader stores the status. Informational responses are dropped.
func (w *bufferWriter) WriteHeader(status int) {
	if w.status == 0 && base.IsFinal(status) {
		w.status = status
	}
}

func (w *bufferWriter) Write(p []byte) (n int, err error) {
	w.WriteHeader(http.StatusOK)
	if w.err == nil {
		n, w.err = w.body.Write(p)
	}
	return n, w.err
}

// FlushError does nothing: the response is sent as a whole.
func (w *bufferWriter) FlushError() error { return nil }

// Hijack takes the connection.
func (w *bufferWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, buffer, err
}

// send sends the stored response to the client.
func (w *bufferWriter) send() {
	switch {
	case w.hijacked:
		return
	case w.err != nil:
		outcome.Blame(w.ResponseWriter, outcome.GatewayFault)
		base.Refuse(w.ResponseWriter, w.status)
		return
	case w.status == 0:
		w.status = http.StatusOK
	}
	header := w.ResponseWriter.Header()
	clear(header)
	maps.Copy(header, w.header)
	if w.body.size > 0 {
		header.Set("Content-Length", strconv.FormatInt(w.body.size, 10))
	}
	w.ResponseWriter.WriteHeader(w.status)
	_, _ = base.CopyTo(w.ResponseWriter, w.body.reader()) // An error is the client's connection's.
}
