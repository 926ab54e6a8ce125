// Package target cleans the targets of requests (RFC 9112, 3.2), so that rules and servers see the same path.
//
// It does not match rules, and does not refuse characters that entry points do not allow.
package target

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"fairlead/internal/gateway/rule"
	"fairlead/internal/model/gateway"
)

// Cleaner says how an entry point changes the targets of requests before rules see them.
type Cleaner struct {
	// unsanitized paths keep dot segments and repeated slashes.
	unsanitized bool
	// semicolons: those of queries are encoded.
	semicolons bool
}

// Of returns the settings of an entry point.
func Of(value gateway.EntryPoint) Cleaner {
	return Cleaner{unsanitized: value.SanitizePath != nil && !*value.SanitizePath,
		semicolons: value.EncodeQuerySemicolons}
}

// Clean replaces the path of the request by its clean form, in which rules and
// servers see the same. It returns false if the target is invalid.
func (c Cleaner) Clean(r *http.Request) bool {
	if strings.Contains(r.RequestURI, "#") {
		return false
	}
	if c.semicolons && strings.Contains(r.URL.RawQuery, ";") {
		r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, ";", "%3B")
		r.RequestURI = r.URL.RequestURI()
	}
	raw := r.URL.EscapedPath()
	if isClean(raw) {
		return true
	}
	form := rule.CleanPath
	if c.unsanitized {
		form = rule.NormalPath
	}
	clean, err := form(raw)
	if err != nil {
		return false
	}
	decoded, err := url.PathUnescape(clean)
	if err != nil {
		return false
	}
	r.URL.Path, r.URL.RawPath = decoded, clean
	r.RequestURI = r.URL.RequestURI()
	return true
}

// isClean reports whether the path needs no cleaning, which is almost always so.
func isClean(path string) bool {
	return path != "" && path[0] == '/' && !strings.Contains(path, "%") && !strings.Contains(path, "//") &&
		!strings.Contains(path, "/.")
}

// Request returns what rules see of the request.
func Request(r *http.Request, peer netip.Addr) rule.Request {
	return rule.Request{Method: r.Method, Host: hostOf(r.Host), Path: r.URL.EscapedPath(), RawQuery: r.URL.RawQuery,
		Header: r.Header, Client: peer}
}

// hostOf returns the host of a Host field as rules compare it, without the port (RFC 3986 3.2.2). Several
// colons without brackets are an address.
func hostOf(host string) string {
	if bracketed, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(bracketed, "]")
	} else if name, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		host = name
	}
	return rule.CanonicalHost(host)
}
