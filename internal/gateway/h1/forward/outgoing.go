package forward

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"fairlead/internal/gateway/h1/wire"
)

// appendRequest appends the head of the request to x.out.
func (x *exchange) appendRequest() error {
	r := x.r
	if !wire.All(r.Method, wire.IsToken) {
		return wire.Malformed("method %.40q", r.Method)
	}
	host := x.host
	if host == "" {
		host = r.Host
	}
	out := append(x.out[:0], r.Method...)
	out = append(out, ' ')
	start := len(out)
	out = appendTarget(out, r.URL)
	for _, b := range out[start:] {
		if b <= ' ' || b == 0x7f {
			return wire.Malformed("target %.80q", out[start:])
		}
	}
	out = append(out, " HTTP/1.1\r\nHost: "...)
	if strings.IndexByte(host, ' ') >= 0 || !wire.ValidValue(host) {
		return wire.Malformed("host %.80q", host)
	}
	out = append(out, host...)
	out = append(out, '\r', '\n')
	out, err := appendFields(out, r.Header)
	if err != nil {
		return err
	}
	out = x.appendFraming(out)
	x.out = append(out, '\r', '\n')
	return nil
}

// appendTarget appends the request's target in origin form (RFC 9112 3.2.1), or "*".
func appendTarget(out []byte, u *url.URL) []byte {
	path := u.EscapedPath()
	if !strings.HasPrefix(path, "/") && path != "*" {
		out = append(out, '/')
	}
	out = append(out, path...)
	if u.ForceQuery || u.RawQuery != "" {
		out = append(out, '?')
		out = append(out, u.RawQuery...)
	}
	return out
}

// appendFields appends header fields, without those that concern one connection only.
func appendFields(out []byte, h http.Header) ([]byte, error) {
	connection := h["Connection"]
	for key, values := range h {
		if wire.HopByHop(key) || wire.Named(connection, key) {
			continue
		}
		if !wire.All(key, wire.IsToken) {
			return nil, wire.Malformed("header name %.80q", key)
		}
		for _, v := range values {
			if !wire.ValidValue(v) {
				return nil, wire.Malformed("value of %s has control characters", key)
			}
			out = append(out, key...)
			out = append(out, ':', ' ')
			out = append(out, v...)
			out = append(out, '\r', '\n')
		}
	}
	return out, nil
}

// Upgrades returns true if the request asks to change to another protocol, and the gateway can forward that. Any
// client can send the header Upgrade alone.
func Upgrades(r *http.Request) bool { return r.ProtoMajor == 1 && upgradeOf(r.Header) != "" }

// upgradeOf returns the protocol that the request asks to change to, or "". HTTP/2 is refused: a server
// that accepts it would see requests that the gateway has not routed.
func upgradeOf(h http.Header) string {
	u := h["Upgrade"]
	if len(u) != 1 || !wire.Named(h["Connection"], "Upgrade") || !wire.ValidValue(u[0]) || u[0] == "" {
		return ""
	}
	for list := u[0]; list != ""; {
		item, rest, _ := strings.Cut(list, ",")
		name, _, _ := strings.Cut(wire.Trim(item), "/")
		if wire.EqualFold(name, "h2c") || wire.EqualFold(name, "h2") || wire.EqualFold(name, "http") {
			return ""
		}
		list = rest
	}
	return u[0]
}

func (x *exchange) appendFraming(out []byte) []byte {
	if x.upgrade != "" {
		out = append(out, "Connection: Upgrade\r\nUpgrade: "...)
		out = append(out, x.upgrade...)
		out = append(out, '\r', '\n')
	}
	switch n := x.r.ContentLength; {
	case x.mode == bodyNone:
		switch x.r.Method {
		case "POST", "PUT", "PATCH":
			out = append(out, "Content-Length: 0\r\n"...)
		}
	case n >= 0:
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, n, 10)
		out = append(out, '\r', '\n')
	default:
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
		if len(x.r.Trailer) > 0 {
			out = appendTrailerNames(out, x.r.Trailer)
		}
	}
	return out
}

func appendTrailerNames(out []byte, trailer http.Header) []byte {
	out = append(out, "Trailer: "...)
	first := true
	for key := range trailer {
		if !wire.All(key, wire.IsToken) {
			continue
		}
		if !first {
			out = append(out, ", "...)
		}
		first = false
		out = append(out, key...)
	}
	return append(out, '\r', '\n')
}

// chooseMode decides how the body is sent, and reads it if it is short.
func (x *exchange) chooseMode() error {
	r := x.r
	n := r.ContentLength
	x.expect = r.Header["Expect"] != nil
	switch {
	case r.Body == nil || r.Body == http.NoBody || n == 0:
		x.mode = bodyNone
		return nil
	case n < 0 || n > MaxInline || x.expect:
		x.mode = bodyStream
		return nil
	}
	x.mode = bodyInline
	if cap(x.body) < int(n) {
		x.body = make([]byte, MaxInline)
	}
	x.body = x.body[:n]
	if _, err := io.ReadFull(r.Body, x.body); err != nil {
		return &wire.Error{Op: "read request body", Err: wire.Unexpected(err), BodyRead: true, Client: true}
	}
	return nil
}
