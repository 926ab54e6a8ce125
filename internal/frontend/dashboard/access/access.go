// Package access decides who may look at a dashboard: which names a request may use for the host, which credential it
// must have, and where the dashboard listens.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// whoKey is the key of who makes a request, in its context.
type whoKey struct{}

// with returns the request of somebody.
func with(r *http.Request, who string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), whoKey{}, who))
}

// Who returns who makes a request, for the log.
func Who(r *http.Request) string {
	if who, ok := r.Context().Value(whoKey{}).(string); ok {
		return who
	}
	return r.RemoteAddr
}

// OnlyHosts refuses requests that use another name for this host. So a site whose name resolves to this host's address
// (DNS rebinding) gets nothing, with or without an Origin.
func OnlyHosts(allowed func(name string) bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostname(r.Host); !allowed(name) {
			http.Error(w, "The dashboard does not answer for this name: use the address that it was started with.",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostname returns the host of a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Loopback reports whether a name is localhost or a loopback address.
func Loopback(name string) bool {
	a, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// same reports in constant time whether two secrets are the same.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
