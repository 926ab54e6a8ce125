package base

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The headers of requests that several middlewares use.
const (
	HeaderForwardedFor    = "X-Forwarded-For"
	HeaderForwardedProto  = "X-Forwarded-Proto"
	headerForwardedPrefix = "X-Forwarded-Prefix"
)

// SetTrusted sets a header that a server trusts. It deletes what the client sent under
// that name.
func SetTrusted(h http.Header, name, value string) {
	Protect(h, name)
	h.Set(name, value)
}

// Protect keeps clients from changing what a header means to a server. It deletes the
// headers that CGI and WSGI servers confuse with it, because they convert "-" and "." to
// "_" (CVE-2026-39858), and removes its name from Connection, with which a client would
// make the proxy delete it (RFC 9110, section 7.6.1).
func Protect(h http.Header, name string) {
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

// CheckHeader returns an error if a configured header is not valid in HTTP.
func CheckHeader(name, value string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("use header %q: a name has letters, digits and \"-\" only", name)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("use header %q: its value has control characters", name)
	}
	return nil
}

// ForwardedProto returns the scheme that the client uses: X-Forwarded-Proto of a trusted
// proxy, or the connection's. A WebSocket's scheme is that of its HTTP request.
func ForwardedProto(r *http.Request) string {
	switch strings.ToLower(r.Header.Get(HeaderForwardedProto)) {
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

// RemoveHopHeaders deletes the headers that concern one connection only (RFC 9110,
// section 7.6.1): those that Connection names, and the known ones.
func RemoveHopHeaders(h http.Header) {
	for token := range strings.SplitSeq(strings.Join(h["Connection"], ","), ",") {
		h.Del(strings.TrimSpace(token))
	}
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

// AddVary adds a name to the Vary header of a response, once.
func AddVary(h http.Header, name string) {
	if !httpguts.HeaderValuesContainsToken(h["Vary"], name) {
		h.Add("Vary", name)
	}
}

// ContainsFold returns whether a list has a text, in any case.
func ContainsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}
