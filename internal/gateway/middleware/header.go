package middleware

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The headers of requests that several middlewares use.
const (
	headerForwardedFor    = "X-Forwarded-For"
	headerForwardedProto  = "X-Forwarded-Proto"
	headerForwardedPrefix = "X-Forwarded-Prefix"
)

// setTrusted sets a header that a server trusts. It deletes what the client sent under
// that name.
func setTrusted(h http.Header, name, value string) {
	protect(h, name)
	h.Set(name, value)
}

// protect keeps clients from changing what a header means to a server. It deletes the
// headers that CGI and WSGI servers confuse with it, because they convert "-" and "." to
// "_" (CVE-2026-39858), and removes its name from Connection, with which a client would
// make the proxy delete it (RFC 9110, section 7.6.1).
func protect(h http.Header, name string) {
	if httpguts.HeaderValuesContainsToken(h["Connection"], name) {
		var kept []string
		for token := range strings.SplitSeq(strings.Join(h["Connection"], ","), ",") {
			if token = strings.TrimSpace(token); !strings.EqualFold(token, name) {
				kept = append(kept, token)
			}
		}
		h["Connection"] = kept
	}
	for other := range h {
		if len(other) == len(name) && !strings.EqualFold(other, name) && isAlias(other, name) {
			delete(h, other)
		}
	}
}

// cgiName converts the name of a header as CGI does (RFC 3875, section 4.1.18).
var cgiName = strings.NewReplacer("-", "_", ".", "_")

// isAlias compares two names of the same length as CGI does.
func isAlias(a, b string) bool {
	return strings.EqualFold(cgiName.Replace(a), cgiName.Replace(b))
}

// checkHeader returns an error if a configured header is not valid in HTTP.
func checkHeader(name, value string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("use header %q: a name has letters, digits and \"-\" only", name)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("use header %q: its value has control characters", name)
	}
	return nil
}

// forwardedProto returns the scheme that the client uses: X-Forwarded-Proto of a trusted
// proxy, or the connection's. A WebSocket's scheme is that of its HTTP request.
func forwardedProto(r *http.Request) string {
	switch strings.ToLower(r.Header.Get(headerForwardedProto)) {
	case "http", "ws":
		return "http"
	case "https", "wss":
		return "https"
	}
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// removeHopHeaders deletes the headers that concern one connection only (RFC 9110,
// section 7.6.1): those that Connection names, and the known ones.
func removeHopHeaders(h http.Header) {
	for token := range strings.SplitSeq(strings.Join(h["Connection"], ","), ",") {
		h.Del(strings.TrimSpace(token))
	}
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

// addVary adds a name to the Vary header of a response, once.
func addVary(h http.Header, name string) {
	if !httpguts.HeaderValuesContainsToken(h["Vary"], name) {
		h.Add("Vary", name)
	}
}
