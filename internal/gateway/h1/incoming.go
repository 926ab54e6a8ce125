package h1

import "net/http"

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
		b := u.bytes()
		if n := headEnd(b, searched); n > 0 {
			text := string(b[:n])
			u.consume(n)
			h, err := u.parse(text, x.r.Method)
			h.size = n
			return h, err
		}
		searched = max(0, len(b)-2)
		if err := u.fill(); err != nil {
			return response{}, unexpected(err)
		}
		x.answered = true
	}
}

// parse parses a head and decides how the body is framed (RFC 9112 6.3).
func (u *upstream) parse(text, method string) (response, error) {
	var h response
	line, rest, _ := nextLine(text)
	minor, err := h.parseStatus(line)
	if err != nil {
		return h, err
	}
	if u.fields, err = parseFields(u.fields[:0], rest); err != nil {
		return h, err
	}
	h.length = -1
	length, closes, keeps, badTrailer := "", false, false, false
	for _, f := range u.fields {
		switch f.key {
		case "Connection":
			closes = closes || hasToken(f.value, "close")
			keeps = keeps || hasToken(f.value, "keep-alive")
		case "Content-Length":
			if h.length, err = parseLength(f.value); err != nil || length != "" && f.value != length {
				return h, malformed("several values of Content-Length, or a wrong one: %.40q", f.value)
			}
			length = f.value
		case "Transfer-Encoding":
			if h.chunked || minor == 0 || !equalFold(f.value, "chunked") {
				return h, malformed("Transfer-Encoding %.40q in a response of HTTP/1.%d", f.value, minor)
			}
			h.chunked = true
		case "Trailer":
			badTrailer = badTrailer || announcesFraming(f.value)
		case "Upgrade":
			h.upgrade = f.value
		}
	}
	switch {
	case h.chunked && length != "":
		return h, malformed("both Content-Length and Transfer-Encoding")
	case h.chunked && badTrailer:
		return h, malformed("a trailer that frames the message")
	}
	h.closing = closes || minor == 0 && !keeps
	h.frame(method)
	return h, nil
}

// announcesFraming returns true if a Trailer field names one that frames the message (RFC 9110 6.5.1).
func announcesFraming(trailer string) bool {
	return hasToken(trailer, "Content-Length") || hasToken(trailer, "Transfer-Encoding") || hasToken(trailer, "Trailer")
}

// parseStatus parses the status line; the reason is ignored.
func (h *response) parseStatus(line string) (minor int, err error) {
	if len(line) < 12 || line[:7] != "HTTP/1." || line[7] < '0' || line[7] > '9' || line[8] != ' ' ||
		len(line) > 12 && line[12] != ' ' {
		return 0, malformed("status line %.80q", line)
	}
	for _, d := range []byte(line[9:12]) {
		if d < '0' || d > '9' {
			return 0, malformed("status line %.80q", line)
		}
		h.status = h.status*10 + int(d-'0')
	}
	if h.status < 100 {
		return 0, malformed("status %d", h.status)
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

// receive reads the response and copies it.
func (x *exchange) receive() *Error {
	for interim := 0; ; {
		h, err := x.readHead()
		if h.status < 200 {
			interim += h.size
		}
		if err == nil && interim > maxInterim {
			err = malformed("interim responses of more than %d bytes", maxInterim)
		}
		if err != nil {
			return &Error{Op: "read response", Err: err, Sent: true, Started: x.started}
		}
		switch {
		case h.status == http.StatusSwitchingProtocols:
			return x.switchProtocols(h)
		case h.status < 200:
			x.interim(h)
		default:
			x.u.arrived()
			return x.copyResponse(h)
		}
	}
}

// maxInterim limits the heads of the interim responses (1xx) of a request, in bytes: as for the final head. A
// server may send as many as it likes (RFC 9110 15.2), for example one per second while it works.
const maxInterim = bufferSize

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
		if f.key == "Connection" {
			connection += "," + f.value
		}
	}
	for i, f := range fields {
		switch f.key {
		case "Content-Length":
			if hasLength || h.status < 200 {
				continue
			}
			hasLength = true
			delete(to, f.key)
		case "Trailer":
			if !h.chunked {
				continue
			}
		default:
			if hopByHop(f.key) || connection != "" && hasToken(connection, f.key) {
				continue
			}
		}
		if old, ok := to[f.key]; ok {
			to[f.key] = append(old, f.value)
			continue
		}
		values[i] = f.value
		to[f.key] = values[i : i+1 : i+1]
	}
}

// copyResponse writes the final response to the client.
func (x *exchange) copyResponse(h response) *Error {
	x.u.closing = h.closing
	x.copyFields(x.w.Header(), h)
	x.w.WriteHeader(h.status)
	x.started = true
	if x.flusher != nil {
		x.unflushed = true
		x.u.wait = x.flush
	}
	var failed *Error
	switch {
	case h.chunked:
		failed = x.copyChunked()
	case h.length < 0:
		failed = x.copyToEOF()
	default:
		failed = x.copyLength(h.length)
	}
	x.u.wait = nil
	return failed
}
