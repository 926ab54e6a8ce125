package base

import (
	"io"
	"maps"
	"net/http"
)

// CatchWriter drops responses that another one replaces.
type CatchWriter struct {
	HeadWriter
	// drop returns whether to drop the response with a status. It is called once.
	drop func(status int) bool
	// header is the state to which a dropped response's header is reset.
	header http.Header
	// Caught is the status of the dropped response, or 0.
	Caught int
}

// NewCatchWriter returns a writer that drops a response if drop says so of its status.
func NewCatchWriter(w http.ResponseWriter, drop func(status int) bool) *CatchWriter {
	return &CatchWriter{HeadWriter: HeadWriter{ResponseWriter: w, Before: func(int) {}}, drop: drop,
		header: w.Header().Clone()}
}

// WriteHeader drops the response or passes the status on.
func (w *CatchWriter) WriteHeader(status int) {
	if w.done || w.Caught != 0 {
		return
	}
	if IsFinal(status) && w.drop(status) {
		w.Caught = status
		clear(w.Header())
		maps.Copy(w.Header(), w.header)
		return
	}
	w.HeadWriter.WriteHeader(status)
}

func (w *CatchWriter) ensure() {
	if !w.done && w.Caught == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *CatchWriter) Write(p []byte) (int, error) {
	if w.ensure(); w.Caught != 0 {
		return len(p), nil
	}
	return w.HeadWriter.Write(p)
}

// ReadFrom reads a dropped body to its end, so that the connection to the server can be
// used again.
func (w *CatchWriter) ReadFrom(from io.Reader) (int64, error) {
	if w.ensure(); w.Caught != 0 {
		return io.Copy(io.Discard, from)
	}
	return w.HeadWriter.ReadFrom(from)
}

// FlushError sends what was written to the client.
func (w *CatchWriter) FlushError() error {
	if w.ensure(); w.Caught != 0 {
		return nil
	}
	return w.HeadWriter.FlushError()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *CatchWriter) Flush() { _ = w.FlushError() }
