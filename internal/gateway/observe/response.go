package observe

import (
	"io"
	"net/http"
	"time"

	"fairlead/internal/gateway/middleware/outcome"
)

// Response notes the status of a server's response, and when its head arrived.
type Response struct {
	http.ResponseWriter
	began time.Time
	// request is the one that is answered.
	request *http.Request
	// Status is 0 until the head has arrived, and after a change of protocols.
	Status int
	// First is the time from the end of the request to the head.
	First time.Duration
	// written is the size of the body in bytes.
	written int64
	// copies: header becomes a copy of the response's, which middlewares may change later.
	copies bool
	header http.Header
}

func (w *Response) note(status int) {
	if w.Status == 0 && status >= http.StatusOK {
		w.Status, w.First = status, outcome.ServerTook(w.request, w.began)
		if w.copies {
			w.header = w.Header().Clone()
		}
	}
}

// Unwrap lets http.ResponseController find the methods of the connection.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Response) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.written += int64(n)
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that the kernel can move a large body.
func (w *Response) ReadFrom(src io.Reader) (int64, error) {
	w.note(http.StatusOK)
	n, err := io.Copy(w.ResponseWriter, src)
	w.written += n
	return n, err
}

// Flush implements http.Flusher.
func (w *Response) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
