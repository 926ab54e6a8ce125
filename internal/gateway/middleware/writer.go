package middleware

import (
	"io"
	"net/http"
)

// headWriter calls a function once, before the head of the final response is written.
// It keeps what the writer below it can do: Flush and ReadFrom (so that splice(2) works),
// and, through http.ResponseController and Unwrap, Hijack and deadlines.
type headWriter struct {
	http.ResponseWriter
	before func(status int)
	// force, if not 0, replaces the status of the final response.
	force int
	done  bool
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *headWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the head. Informational responses (1xx) pass unchanged.
func (w *headWriter) WriteHeader(status int) {
	if !w.done && isFinal(status) {
		w.done = true
		if w.force != 0 {
			status = w.force
		}
		w.before(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *headWriter) ensure() {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *headWriter) Write(p []byte) (int, error) {
	w.ensure()
	return w.ResponseWriter.Write(p)
}

// ReadFrom copies from a reader to the writer below.
func (w *headWriter) ReadFrom(from io.Reader) (int64, error) {
	w.ensure()
	return copyTo(w.ResponseWriter, from)
}

// FlushError sends what was written to the client.
func (w *headWriter) FlushError() error {
	w.ensure()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *headWriter) Flush() { _ = w.FlushError() }

// finish calls the function for a response that was neither written nor hijacked: the
// server sends 200 with the headers as they are.
func (w *headWriter) finish() {
	if !w.done {
		w.done = true
		w.before(http.StatusOK)
	}
}

// isFinal returns whether no other response follows one with this status.
func isFinal(status int) bool {
	return status >= 200 || status == http.StatusSwitchingProtocols
}

// copyTo copies with the ReadFrom of a writer if it has one.
func copyTo(to io.Writer, from io.Reader) (int64, error) {
	if direct, ok := to.(io.ReaderFrom); ok {
		return direct.ReadFrom(from)
	}
	return io.Copy(struct{ io.Writer }{to}, from)
}
