package forward

import (
	"net/http"

	"fairlead/internal/gateway/h1/wire"
)

// response is the parsed head of a response; its fields are in upstream.fields.
type response struct {
	status int
	// length is the length of the body, -1 if it is chunked or ends with the connection.
	length  int64
	chunked bool
	// closing: the server closes the connection after this response.
	closing bool
	upgrade string
	// size is that of the head.
	size int
}

// readHead reads the next head.
func (x *exchange) readHead() (response, error) {
	u := x.u
	searched := 0
	for {
		b := u.Bytes()
		if n := wire.HeadEnd(b, searched); n > 0 {
			text := string(b[:n])
			u.Consume(n)
			h, err := u.parse(text, x.r.Method)
			h.size = n
			return h, err
		}
		searched = max(0, len(b)-2)
		if err := u.Fill(); err != nil {
			return response{}, wire.Unexpected(err)
		}
		x.answered = true
	}
}

// parse parses a head and decides how the body is framed (RFC 9112 6.3).
func (u *upstream) parse(text, method string) (response, error) {
	var h response
	line, rest, _ := wire.NextLine(text)
	minor, err := h.parseStatus(line)
	if err != nil {
		return h, err
	}
	if u.fields, err = wire.ParseFields(u.fields[:0], rest); err != nil {
		return h, err
	}
	h.length = -1
	length, closes, keeps, badTrailer := "", false, false, false
	for _, f := range u.fields {
		switch f.Key {
		case "Connection":
			closes = closes || wire.HasToken(f.Value, "close")
			keeps = keeps || wire.HasToken(f.Value, "keep-alive")
		case "Content-Length":
			if h.length, err = wire.ParseLength(f.Value); err != nil || length != "" && f.Value != length {
				return h, wire.Malformed("several values of Content-Length, or a wrong one: %.40q", f.Value)
			}
			length = f.Value
		case "Transfer-Encoding":
			if h.chunked || minor == 0 || !wire.EqualFold(f.Value, "chunked") {
				return h, wire.Malformed("Transfer-Encoding %.40q in a response of HTTP/1.%d", f.Value, minor)
			}
			h.chunked = true
		case "Trailer":
			badTrailer = badTrailer || announcesFraming(f.Value)
		case "Upgrade":
			h.upgrade = f.Value
		}
	}
	switch {
	case h.chunked && length != "":
		return h, wire.Malformed("both Content-Length and Transfer-Encoding")
	case h.chunked && badTrailer:
		return h, wire.Malformed("a trailer that frames the message")
	}
	h.closing = closes || minor == 0 && !keeps
	h.frame(method)
	return h, nil
}

// announcesFraming returns true if a Trailer field names one that frames the message (RFC 9110 6.5.1).
func announcesFraming(trailer string) bool {
	return wire.HasToken(trailer, "Content-Length") || wire.HasToken(trailer, "Transfer-Encoding") ||
		wire.HasToken(trailer, "Trailer")
}

// parseStatus parses the status line; the reason is ignored.
func (h *response) parseStatus(line string) (minor int, err error) {
	if len(line) < 12 || line[:7] != "HTTP/1." || line[7] < '0' || line[7] > '9' || line[8] != ' ' ||
		len(line) > 12 && line[12] != ' ' {
		return 0, wire.Malformed("status line %.80q", line)
	}
	for _, d := range []byte(line[9:12]) {
		if d < '0' || d > '9' {
			return 0, wire.Malformed("status line %.80q", line)
		}
		h.status = h.status*10 + int(d-'0')
	}
	if h.status < 100 {
		return 0, wire.Malformed("status %d", h.status)
	}
	return int(line[7] - '0'), nil
}

// frame sets the length of responses without a body, and marks those that end with the connection.
func (h *response) frame(method string) {
	switch {
	case method == "HEAD" || h.status == 204 || h.status == 304 || h.status < 200:
		h.chunked, h.length = false, 0
	case h.chunked:
	case h.length < 0:
		h.closing = true
	}
}

// maxInterim limits the heads of the interim responses (1xx) of a request, in bytes: as for the final head. A
// server may send as many as it likes (RFC 9110 15.2), for example one per second while it works.
const maxInterim = wire.BufferSize

// interim passes on an interim response. 100 lets the sender go on; the server side sends it to the
// client when the body is read.
func (x *exchange) interim(h response) {
	if h.status == http.StatusContinue {
		if x.sender != nil {
			x.sender.allow()
		}
		return
	}
	if !x.r.ProtoAtLeast(1, 1) {
		return
	}
	own := x.w.Header()
	before := make(http.Header, len(own))
	for key, values := range own {
		before[key] = values
	}
	clear(own)
	x.copyFields(own, h)
	x.w.WriteHeader(h.status)
	clear(own)
	for key, values := range before {
		own[key] = values
	}
}

// copyFields adds the response's fields to the header of the writer.
func (x *exchange) copyFields(to http.Header, h response) {
	fields := x.u.fields
	values := make([]string, len(fields))
	connection, hasLength := "", false
	for _, f := range fields {
		if f.Key == "Connection" {
			connection += "," + f.Value
		}
	}
	for i, f := range fields {
		switch f.Key {
		case "Content-Length":
			if hasLength || h.status < 200 {
				continue
			}
			hasLength = true
			delete(to, f.Key)
		case "Trailer":
			if !h.chunked {
				continue
			}
		default:
			if wire.HopByHop(f.Key) || connection != "" && wire.HasToken(connection, f.Key) {
				continue
			}
		}
		if old, ok := to[f.Key]; ok {
			to[f.Key] = append(old, f.Value)
			continue
		}
		values[i] = f.Value
		to[f.Key] = values[i : i+1 : i+1]
	}
}

// copyResponse writes the final response to the client.
func (x *exchange) copyResponse(h response) *wire.Error {
	x.u.closing = h.closing
	x.copyFields(x.w.Header(), h)
	x.w.WriteHeader(h.status)
	x.started = true
	if x.flusher != nil {
		x.unflushed = true
		x.u.Wait = x.flush
	}
	var failed *wire.Error
	switch {
	case h.chunked:
		failed = x.copyChunked()
	case h.length < 0:
		failed = x.copyToEOF()
	default:
		failed = x.copyLength(h.length)
	}
	x.u.Wait = nil
	return failed
}
