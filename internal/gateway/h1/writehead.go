package h1

import (
	"net/http"
	"strconv"

	"fairlead/internal/gateway/h1/wire"
)

// appendHead appends the head to the buffer. If the length of the body is not known yet, a gap is left.
func (w *writer) appendHead() {
	w.bodiless = w.status < 200 || w.status == http.StatusNoContent || w.status == http.StatusNotModified
	w.appendStatus(w.status)
	date, trailer := false, w.header["Trailer"]
	for key, values := range w.header {
		switch key {
		case "Connection":
			if wire.Named(values, "close") {
				w.closing = true
			}
			if w.status != http.StatusSwitchingProtocols {
				continue
			}
		case "Content-Length":
			w.takeLength(values)
			continue
		case "Transfer-Encoding":
			continue
		case "Date":
			date = true
		}
		if trailer != nil && wire.Named(trailer, key) {
			continue
		}
		w.appendField(key, values)
	}
	if !date {
		w.buf = append(w.buf, *w.conn.server.date.Load()...)
	}
	if s, b := w.conn.server, w.conn.body; s.last.Load() || w.conn.isOver(s) || b != nil && b.failed.Load() {
		w.closing = true
	}
	w.gap = len(w.buf)
	switch {
	case w.length >= 0 && w.status != http.StatusNoContent && w.status >= 200:
		w.buf = append(w.buf, "Content-Length: "...)
		w.buf = strconv.AppendInt(w.buf, w.length, 10)
		w.buf = append(w.buf, '\r', '\n')
		w.endHead()
	case w.bodiless:
		w.length = -1
		w.endHead()
	}
}

func (w *writer) appendStatus(status int) {
	if status == http.StatusOK {
		w.buf = append(w.buf, "HTTP/1.1 200 OK\r\n"...)
		return
	}
	w.buf = append(w.buf, "HTTP/1.1 "...)
	w.buf = strconv.AppendInt(w.buf, int64(status), 10)
	w.buf = append(w.buf, ' ')
	w.buf = append(w.buf, http.StatusText(status)...)
	w.buf = append(w.buf, '\r', '\n')
}

// appendField appends a field. It leaves out names and values that would break the message, and
// trailers.
func (w *writer) appendField(key string, values []string) {
	if !wire.All(key, wire.IsToken) {
		return
	}
	for _, v := range values {
		if !wire.ValidValue(v) {
			continue
		}
		w.buf = append(w.buf, key...)
		w.buf = append(w.buf, ':', ' ')
		w.buf = append(w.buf, v...)
		w.buf = append(w.buf, '\r', '\n')
	}
}

func (w *writer) takeLength(values []string) {
	if len(values) == 1 {
		if n, err := wire.ParseLength(values[0]); err == nil {
			w.length = n
		}
	}
}

// endHead ends the head; the body follows.
func (w *writer) endHead() {
	w.framed = true
	switch {
	case w.status == http.StatusSwitchingProtocols:
	case w.closing:
		w.buf = append(w.buf, "Connection: close\r\n"...)
	case w.request.ProtoMinor == 0:
		w.buf = append(w.buf, "Connection: keep-alive\r\n"...)
	}
	w.buf = append(w.buf, '\r', '\n')
}
