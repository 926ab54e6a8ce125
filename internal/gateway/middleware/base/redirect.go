package base

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// URLOf returns the URL of a request at a host. It is empty if the request has none: its
// target is "*", or it names no host.
func URLOf(r *http.Request, scheme, host string) string {
	uri := r.URL.RequestURI()
	if host == "" || !strings.HasPrefix(uri, "/") {
		return ""
	}
	return scheme + "://" + host + uri
}

// SplitHost divides a Host header into host, with the brackets of an IPv6 address, and
// port.
func SplitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host, port
}

// JoinHost joins host and port. The scheme's default port is left out.
func JoinHost(host, port, scheme string) string {
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return host
	}
	return host + ":" + port
}

// Redirect answers with a redirection. A client that follows one of another method than
// GET with 307 or 308 sends the body again.
func Redirect(w http.ResponseWriter, r *http.Request, target string, permanent bool) {
	status := http.StatusFound
	switch get := r.Method == http.MethodGet; {
	case permanent && get:
		status = http.StatusMovedPermanently
	case permanent:
		status = http.StatusPermanentRedirect
	case !get:
		status = http.StatusTemporaryRedirect
	}
	RedirectWith(w, target, status)
}

// RedirectWith redirects with a status. A target that is empty or does not parse as a URL,
// which only unusual and hostile requests cause, is answered with 400.
func RedirectWith(w http.ResponseWriter, target string, status int) {
	u, err := url.Parse(target)
	if err != nil || target == "" {
		Refuse(w, http.StatusBadRequest)
		return
	}
	w.Header().Set("Location", u.String())
	Refuse(w, status)
}
