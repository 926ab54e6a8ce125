package base

import (
	"net/http"
	"net/url"
	"strings"
)

// SetPath changes the path of a request. The argument is encoded as in a request line.
// It is the only function of the package that changes a path, because three fields
// belong together: URL.Path is decoded, URL.RawPath (and URL.EscapedPath) encoded, and
// RequestURI is the encoded path with the query. The request gets a new URL, so that
// others who have the old one, such as an access log, keep it unchanged. It returns
// false, and changes nothing, if the encoding is invalid or if the path has a dot
// segment, also an encoded one: a server would resolve it to a path that the router did
// not check (CVE-2026-48020, CVE-2026-40912).
func SetPath(r *http.Request, escaped string) bool {
	path, err := url.PathUnescape(escaped)
	if err != nil || HasDotSegment(path) {
		return false
	}
	u := *r.URL
	u.Path, u.RawPath = path, escaped // EscapedPath ignores a RawPath that is not valid.
	r.URL, r.RequestURI = &u, u.RequestURI()
	return true
}

// HasDotSegment returns whether a decoded path has a segment "." or "..".
func HasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// WithSlash returns a path that begins with a slash.
func WithSlash(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}

// EscapePath encodes a path that a user has configured in decoded form.
func EscapePath(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}

// afterPrefix returns the part of an encoded path after a decoded prefix of it.
func afterPrefix(escaped, prefix string) string {
	i := 0
	for range len(prefix) {
		if i < len(escaped) && escaped[i] == '%' {
			i += 2
		}
		i++
	}
	return escaped[min(i, len(escaped)):]
}

// StripPath removes a decoded prefix of a request's path and adds it to
// X-Forwarded-Prefix. If nothing remains, the path is "/", or empty with mayBeEmpty: later
// middlewares see that. It returns false if the rest is not a valid path, or
// if it has an empty segment, as in Traefik: a server could take //NAME for a host.
func StripPath(r *http.Request, prefix string, mayBeEmpty bool) bool {
	rest := afterPrefix(r.URL.EscapedPath(), prefix)
	if rest != "" || !mayBeEmpty {
		rest = WithSlash(rest)
	}
	if strings.Contains(rest, "//") || !SetPath(r, rest) {
		return false
	}
	Protect(r.Header, headerForwardedPrefix)
	r.Header.Add(headerForwardedPrefix, EscapePath(prefix))
	return true
}
