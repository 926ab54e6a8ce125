package base

import (
	"io"
	"net/http"
)

// HeadWriter calls a function once, before the head of the final response is written.
// It keeps what the writer below it can do: Flush and ReadFrom (so that splice(2) works),
// and, through http.ResponseController and Unwrap, Hijack and deadlines.
type HeadWriter struct {
	http.ResponseWriter
	Before func(status int)
	// force, if not 0, replaces the status of the final response.
	Force int
	done  bool
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *HeadWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader writes the head. Informational responses (1xx) pass unchanged.
func (w *HeadWriter) WriteHeader(status int) {
	if !w.done && IsFinal(status) {
		w.done = true
		if w.Force != 0 {
			status = w.Force
		}
		w.Before(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *HeadWriter) ensure() {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *HeadWriter) Write(p []byte) (int, error) {
	w.ensure()
	return w.ResponseWriter.Write(p)
}

// ReadFrom copies from a reader to the writer below.
func (w *HeadWriter) ReadFrom(from io.Reader) (int64, error) {
	w.ensure()
	return CopyTo(w.ResponseWriter, from)
}

// FlushError sends what was written to the client.
func (w *HeadWriter) FlushError() error {
	w.ensure()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *HeadWriter) Flush() { _ = w.FlushError() }

// Finish calls the function for a response that was neither written nor hijacked: the
// server sends 200 with the headers as they are.
func (w *HeadWriter) Finish() {
	if !w.done {
		w.done = true
		w.Before(http.StatusOK)
	}
}

// IsFinal returns whether no other response follows one with this status.
func IsFinal(status int) bool {
	return status >= 200 || status == http.StatusSwitchingProtocols
}

// CopyTo copies with the ReadFrom of a writer if it has one.
func CopyTo(to io.Writer, from io.Reader) (int64, error) {
	if direct, ok := to.(io.ReaderFrom); ok {
		return direct.ReadFrom(from)
	}
	return io.Copy(struct{ io.Writer }{to}, from)
}
