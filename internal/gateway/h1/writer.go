package h1

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"fairlead/internal/gateway/h1/wire"
)

// outSize is the size of the buffers for heads and short bodies of responses.
const outSize = 8 << 10

var outs = sync.Pool{New: func() any { return new([outSize]byte) }}

// begin prepares the writer for a request.
func (w *writer) begin(r *http.Request) {
	w.request = r
	if len(w.header) > 64 {
		w.header = http.Header{}
	}
	clear(w.header)
	w.buf = outs.Get().(*[outSize]byte)[:0]
	w.gap, w.status, w.length, w.written = 0, 0, -1, 0
	w.framed, w.chunked, w.bodiless, w.hijacked = false, false, false, false
	w.head = r.Method == "HEAD"
	w.closing, w.err, w.sealed = r.Close, nil, false
}

// release gives the buffer back.
func (w *writer) release() {
	if cap(w.buf) == outSize {
		outs.Put((*[outSize]byte)(w.buf[:outSize]))
	}
	w.buf = nil
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Interim responses (1xx but 101) are sent at once.
func (w *writer) WriteHeader(status int) {
	switch {
	case w.hijacked || w.status != 0:
		return
	case status < 100 || status > 999:
		panic("h1: invalid status " + strconv.Itoa(status))
	case status == http.StatusContinue:
		w.sendContinue()
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.writeInterim(status)
		return
	}
	w.status = status
	if w.expect.Load() {
		// From now on no interim response may be sent.
		w.interim.Lock()
		w.sealed = true
		w.closing = w.closing || w.expect.Load()
		w.interim.Unlock()
	}
	w.appendHead()
}

func (w *writer) writeInterim(status int) {
	if w.request.ProtoMinor == 0 {
		return
	}
	w.appendStatus(status)
	for key, values := range w.header {
		if key != "Content-Length" && !wire.HopByHop(key) {
			w.appendField(key, values)
		}
	}
	w.buf = append(w.buf, '\r', '\n')
	w.send(nil)
}

// frame decides how a body of unknown length ends. If final, the buffer holds the whole body.
func (w *writer) frame(final bool) {
	body := len(w.buf) - w.gap
	start := len(w.buf)
	switch {
	case final && w.head && w.written == 0:
	case final && !w.hasTrailer():
		w.length = w.written
		w.buf = append(w.buf, "Content-Length: "...)
		w.buf = strconv.AppendInt(w.buf, w.length, 10)
		w.buf = append(w.buf, '\r', '\n')
	case w.head:
	case w.request.ProtoMinor == 0:
		w.closing = true
	default:
		w.chunked = true
		w.buf = append(w.buf, "Transfer-Encoding: chunked\r\n"...)
	}
	w.endHead()
	if body == 0 {
		return
	}
	if w.chunked {
		w.appendChunkSize(body)
	}
	// The fields were appended behind the body: exchange the two.
	var fields [80]byte
	n := copy(fields[:], w.buf[start:])
	copy(w.buf[w.gap+n:], w.buf[w.gap:start])
	copy(w.buf[w.gap:], fields[:n])
	if w.chunked {
		w.buf = append(w.buf, '\r', '\n')
	}
}

func (w *writer) appendChunkSize(n int) {
	w.buf = strconv.AppendInt(w.buf, int64(n), 16)
	w.buf = append(w.buf, '\r', '\n')
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case w.bodiless:
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.head {
		return len(p), nil
	}
	if !w.framed {
		if len(w.buf)+len(p) <= outSize {
			w.buf = append(w.buf, p...)
			return len(p), nil
		}
		w.frame(false)
	}
	if w.chunked {
		w.appendChunkSize(len(p))
	}
	if len(w.buf)+len(p)+2 > outSize {
		w.send(p)
		p = p[:len(p):len(p)]
		if w.chunked {
			w.buf = append(w.buf, '\r', '\n')
		}
		return len(p), w.err
	}
	w.buf = append(w.buf, p...)
	if w.chunked {
		w.buf = append(w.buf, '\r', '\n')
	}
	return len(p), nil
}

// send writes the buffer and p.
func (w *writer) send(p []byte) {
	if w.err != nil {
		return
	}
	c := w.conn
	if c.server.WriteTimeout > 0 {
		c.writing.Store(c.server.now.Load())
		defer c.writing.Store(0)
	}
	switch {
	case len(p) == 0 && len(w.buf) == 0:
	case len(p) == 0:
		_, w.err = c.out.Write(w.buf)
	case len(w.buf) == 0:
		_, w.err = c.out.Write(p)
	default:
		w.parts[0], w.parts[1] = w.buf, p
		w.vector = w.parts[:]
		_, w.err = w.vector.WriteTo(c.Conn)
		w.parts[0], w.parts[1] = nil, nil
	}
	w.buf = w.buf[:0]
}

// ReadFrom implements io.ReaderFrom. A part of a TCP connection is spliced if the length of the body is
// known and the client's connection has no TLS.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 && !w.hijacked {
		w.WriteHeader(http.StatusOK)
	}
	limited, ok := r.(*io.LimitedReader)
	if ok && w.conn.tcp != nil && !w.hijacked && !w.head && !w.bodiless && limited.N <= w.length-w.written {
		if _, ok = limited.R.(*net.TCPConn); ok {
			return w.splice(limited)
		}
	}
	buf := wire.Buffers.Get().(*[wire.BufferSize]byte)
	defer wire.Buffers.Put(buf)
	for total := int64(0); ; {
		n, err := r.Read(buf[:])
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return total, werr
			}
			total += int64(n)
		}
		if wire.IsDrained(r, n, len(buf)) {
			if werr := w.FlushError(); werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (w *writer) splice(from *io.LimitedReader) (int64, error) {
	if w.send(nil); w.err != nil {
		return 0, w.err
	}
	c := w.conn
	if c.server.WriteTimeout > 0 {
		c.writing.Store(c.server.now.Load())
		defer c.writing.Store(0)
	}
	n, err := c.tcp.ReadFrom(from)
	w.written += n
	w.err = err
	return n, err
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError sends what is buffered (see http.ResponseController).
func (w *writer) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.framed {
		w.frame(false)
	}
	w.send(nil)
	return w.err
}

// endsWithConnection returns true if the end of the connection ends the body.
func (w *writer) endsWithConnection() bool {
	return w.framed && w.length < 0 && !w.chunked && !w.bodiless && !w.head
}

// finish completes the response after the handler. It returns false if the connection must close at
// once, because the response is not complete.
func (w *writer) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.framed {
		w.frame(true)
	}
	if w.chunked {
		w.appendEnd()
	}
	w.send(nil)
	w.release()
	short := w.length >= 0 && w.written < w.length && !w.head && !w.bodiless
	return w.err == nil && !short && w.status != http.StatusSwitchingProtocols
}

// appendEnd appends the last chunk and the trailer.
func (w *writer) appendEnd() {
	w.buf = append(w.buf, "0\r\n"...)
	announced := w.header["Trailer"]
	for key, values := range w.header {
		name, prefixed := strings.CutPrefix(key, http.TrailerPrefix)
		if (prefixed || len(announced) > 0 && wire.Named(announced, key)) && wire.TrailerAllowed(name) {
			w.appendField(name, values)
		}
	}
	w.buf = append(w.buf, '\r', '\n')
}

// hasTrailer returns true if the handler has announced a trailer or set one with http.TrailerPrefix.
func (w *writer) hasTrailer() bool {
	if w.request.ProtoMinor == 0 || w.head {
		return false
	}
	if len(w.header["Trailer"]) > 0 {
		return true
	}
	for key := range w.header {
		if strings.HasPrefix(key, http.TrailerPrefix) {
			return true
		}
	}
	return false
}
