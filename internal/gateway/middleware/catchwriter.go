package middleware

import (
	"io"
	"maps"
	"net/http"
)

// catchWriter drops responses that another one replaces.
type catchWriter struct {
	headWriter
	// drop returns whether to drop the response with a status. It is called once.
	drop func(status int) bool
	// header is the state to which a dropped response's header is reset.
	header http.Header
	// caught is the status of the dropped response, or 0.
	caught int
}

func newCatchWriter(w http.ResponseWriter, drop func(status int) bool) *catchWriter {
	return &catchWriter{headWriter: headWriter{ResponseWriter: w, before: func(int) {}}, drop: drop,
		header: w.Header().Clone()}
}

// WriteHeader drops the response or passes the status on.
func (w *catchWriter) WriteHeader(status int) {
	if w.done || w.caught != 0 {
		return
	}
	if isFinal(status) && w.drop(status) {
		w.caught = status
		clear(w.Header())
		maps.Copy(w.Header(), w.header)
		return
	}
	w.headWriter.WriteHeader(status)
}

func (w *catchWriter) ensure() {
	if !w.done && w.caught == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *catchWriter) Write(p []byte) (int, error) {
	if w.ensure(); w.caught != 0 {
		return len(p), nil
	}
	return w.headWriter.Write(p)
}

// ReadFrom reads a dropped body to its end, so that the connection to the server can be
// used again.
func (w *catchWriter) ReadFrom(from io.Reader) (int64, error) {
	if w.ensure(); w.caught != 0 {
		return io.Copy(io.Discard, from)
	}
	return w.headWriter.ReadFrom(from)
}

// FlushError sends what was written to the client.
func (w *catchWriter) FlushError() error {
	if w.ensure(); w.caught != 0 {
		return nil
	}
	return w.headWriter.FlushError()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *catchWriter) Flush() { _ = w.FlushError() }
