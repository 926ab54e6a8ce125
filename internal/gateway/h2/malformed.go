package h2

import (
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// isMalformed returns true for requests that the libraries accept, and that HTTP/1.1 refuses: a server behind the
// gateway could understand them in another way.
func isMalformed(r *http.Request) bool {
	if r.Host == "" || !httpguts.ValidHostHeader(r.Host) || len(r.Header["Content-Length"]) > 1 {
		return true
	}
	// A Host field must not differ from :authority (RFC 9113 8.3.1).
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host {
		return true
	}
	for _, values := range r.Header {
		for _, v := range values {
			if v != "" && (isSpace(v[0]) || isSpace(v[len(v)-1])) { // RFC 9113 8.2.1
				return true
			}
		}
	}
	return false
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' }
