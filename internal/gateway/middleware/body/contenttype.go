package body

import (
	"io"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewContentType sets a missing Content-Type of a response from the first bytes of the
// body. With v2's autoDetect=false it prevents the server from doing so.
func NewContentType(_ *base.Builder, v *gateway.ContentType) (base.Func, error) {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if v.AutoDetect != nil && !*v.AutoDetect {
				if _, ok := w.Header()["Content-Type"]; !ok {
					w.Header()["Content-Type"] = nil // A sign for net/http, too.
				}
				next.ServeHTTP(w, r)
				return
			}
			out := &typeWriter{ResponseWriter: w}
			next.ServeHTTP(out, r)
			out.finish()
		})
	}, nil
}

// typeWriter delays the head of a response without a Content-Type until the first bytes
// of the body are known.
type typeWriter struct {
	http.ResponseWriter
	status int
	done   bool
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *typeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the head if it has a type.
func (w *typeWriter) WriteHeader(status int) {
	switch {
	case w.status != 0:
		return
	case !base.IsFinal(status):
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status = status
	if status == http.StatusSwitchingProtocols || w.Header().Get("Content-Type") != "" ||
		w.Header().Get("Content-Encoding") != "" {
		w.head()
	}
}

// head writes the head once.
func (w *typeWriter) head() {
	if !w.done {
		w.done = true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *typeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.done && len(p) > 0 {
		w.Header().Set("Content-Type", http.DetectContentType(p))
		w.head()
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom reads the bytes that show the type, then passes the rest on.
func (w *typeWriter) ReadFrom(from io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	if w.done {
		return base.CopyTo(w.ResponseWriter, from)
	}
	first := make([]byte, 512)
	n, err := from.Read(first)
	if n > 0 {
		if _, err := w.Write(first[:n]); err != nil {
			return int64(n), err
		}
	}
	if err != nil {
		if err == io.EOF {
			err = nil
		}
		return int64(n), err
	}
	if !w.done {
		return io.Copy(struct{ io.Writer }{w}, from)
	}
	rest, err := base.CopyTo(w.ResponseWriter, from)
	return int64(n) + rest, err
}

// FlushError sends what was written to the client.
func (w *typeWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	w.head()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *typeWriter) Flush() { _ = w.FlushError() }

// finish writes the head of a response without a body.
func (w *typeWriter) finish() {
	if w.status != 0 {
		w.head()
	}
}
