package gateway

import (
	"io"
	"net/http"
	"time"

	"fairlead/internal/gateway/middleware"
)

// watch notes the status of a server's response, and when its head arrived.
type watch struct {
	http.ResponseWriter
	began time.Time
	// request is the one that is answered.
	request *http.Request
	// status is 0 until the head has arrived, and after a change of protocols.
	status int
	// first is the time from the end of the request to the head.
	first time.Duration
	// written is the size of the body in bytes.
	written int64
	// copies: header becomes a copy of the response's, which middlewares may change later.
	copies bool
	header http.Header
}

func (w *watch) note(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status, w.first = status, middleware.ServerTook(w.request, w.began)
		if w.copies {
			w.header = w.Header().Clone()
		}
	}
}

// Unwrap lets http.ResponseController find the methods of the connection.
func (w *watch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *watch) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watch) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that the kernel can move a large body.
func (w *watch) ReadFrom(src io.Reader) (int64, error) {
	w.note(http.StatusOK)
	n, err := io.Copy(w.ResponseWriter, src)
	w.written += n
	return n, err
}

// Flush implements http.Flusher.
func (w *watch) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
