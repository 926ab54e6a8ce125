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
// that name and its aliases.
func setTrusted(h http.Header, name, value string) {
	deleteTrusted(h, name)
	h.Set(name, value)
}

// deleteTrusted deletes a header and its aliases.
func deleteTrusted(h http.Header, name string) {
	h.Del(name)
	deleteAliases(h, name)
}

// deleteAliases deletes the headers that CGI and WSGI servers confuse with name, because
// they convert "-" and "." to "_" (CVE-2026-39858).
func deleteAliases(h http.Header, name string) {
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

// addVary adds a name to the Vary header of a response, once.
func addVary(h http.Header, name string) {
	if !httpguts.HeaderValuesContainsToken(h["Vary"], name) {
		h.Add("Vary", name)
	}
}
