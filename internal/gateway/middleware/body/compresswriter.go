package body

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"fairlead/internal/gateway/middleware/base"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// encoder compresses a stream. Reset begins another one.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// encoders has the pools of encoders by their names in Content-Encoding. The levels
// favour CPU; a window of 256 KiB bounds the memory on both sides.
var encoders = map[string]*sync.Pool{
	"gzip": {New: func() any { return gzip.NewWriter(nil) }},
	"br":   {New: func() any { return brotli.NewWriterOptions(nil, brotli.WriterOptions{Quality: 4, LGWin: 18}) }},
	"zstd": {New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<18),
			zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // The options are constant.
		}
		return w
	}},
}

// compressWriter compresses a response, or passes it on unchanged. It decides as soon as
// the head does; if the head has no length, after minSize bytes or at the first Flush.
type compressWriter struct {
	http.ResponseWriter
	*compress
	encoding string
	status   int
	// decided is true after the head is written. encoder is nil for an unchanged body.
	decided bool
	encoder encoder
	pending []byte
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *compressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader decides if the head is enough to decide.
func (w *compressWriter) WriteHeader(status int) {
	switch {
	case w.status != 0:
		return
	case !base.IsFinal(status):
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.status = status
	if !w.compressible(w.Header(), status) {
		w.decide(false)
		return
	}
	base.AddVary(w.Header(), "Accept-Encoding")
	if w.Header().Get("Content-Length") != "" {
		w.decide(true)
	}
}

// decide writes the head and what was buffered.
func (w *compressWriter) decide(compress bool) {
	w.decided = true
	if compress {
		h := w.Header()
		h.Set("Content-Encoding", w.encoding)
		h.Del("Content-Length")
		h.Del("Accept-Ranges")
		if tag := h.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") {
			h.Set("Etag", "W/"+tag) // The bytes differ, the meaning does not: RFC 9110, section 8.8.1.
		}
		w.encoder = encoders[w.encoding].Get().(encoder)
		w.encoder.Reset(w.ResponseWriter)
	}
	w.ResponseWriter.WriteHeader(w.status)
	if len(w.pending) > 0 {
		_, _ = w.body().Write(w.pending) // The next write returns the error again.
		w.pending = nil
	}
}

// body returns the writer of the body after the decision.
func (w *compressWriter) body() io.Writer {
	if w.encoder != nil {
		return w.encoder
	}
	return w.ResponseWriter
}

func (w *compressWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.decided {
		if len(w.pending)+len(p) < w.minSize {
			w.pending = append(w.pending, p...)
			return len(p), nil
		}
		w.decide(true)
	}
	return w.body().Write(p)
}

// ReadFrom passes an unchanged body on to the ReadFrom of the writer below.
func (w *compressWriter) ReadFrom(from io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.decided && w.encoder == nil {
		return base.CopyTo(w.ResponseWriter, from)
	}
	return io.Copy(struct{ io.Writer }{w}, from)
}

// FlushError sends what was written to the client.
func (w *compressWriter) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.decided {
		w.decide(true)
	}
	if w.encoder != nil {
		if err := w.encoder.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is FlushError for callers that test for http.Flusher.
func (w *compressWriter) Flush() { _ = w.FlushError() }

// finish ends the body. It writes nothing if the handler has not: the connection may be
// hijacked.
func (w *compressWriter) finish() {
	if w.status != 0 && !w.decided {
		w.decide(false)
	}
	if w.encoder == nil {
		return
	}
	_ = w.encoder.Close() // An error is the connection's: the server notices it too.
	w.encoder.Reset(nil)
	encoders[w.encoding].Put(w.encoder)
}
