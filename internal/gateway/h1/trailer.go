package h1

import (
	"net/http"
	"strings"

	"fairlead/internal/gateway/h1/wire"
)

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
