package middleware

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"fairlead/internal/model/gateway"
)

// newRedirectScheme redirects to the same URL with another scheme or port. Requests that
// have both already pass.
func newRedirectScheme(_ *builder, v *gateway.RedirectScheme) (Func, error) {
	if v.Scheme == "" {
		return nil, errors.New("the scheme is missing: set it to https")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme := forwardedProto(r)
			host, port := splitHost(r.Host)
			target := urlOf(r, v.Scheme, joinHost(host, v.Port, v.Scheme))
			if target != "" && target == urlOf(r, scheme, joinHost(host, port, scheme)) {
				next.ServeHTTP(w, r)
				return
			}
			redirect(w, r, target, v.Permanent)
		})
	}, nil
}

// urlOf returns the URL of a request at a host. It is empty if the request has none: its
// target is "*", or it names no host.
func urlOf(r *http.Request, scheme, host string) string {
	uri := r.URL.RequestURI()
	if host == "" || !strings.HasPrefix(uri, "/") {
		return ""
	}
	return scheme + "://" + host + uri
}

// splitHost divides a Host header into host, with the brackets of an IPv6 address, and
// port.
func splitHost(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport, ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host, port
}

// joinHost joins host and port. The scheme's default port is left out.
func joinHost(host, port, scheme string) string {
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return host
	}
	return host + ":" + port
}

// redirect answers with a redirection. A client that follows one of another method than
// GET with 307 or 308 sends the body again.
func redirect(w http.ResponseWriter, r *http.Request, target string, permanent bool) {
	status := http.StatusFound
	switch get := r.Method == http.MethodGet; {
	case permanent && get:
		status = http.StatusMovedPermanently
	case permanent:
		status = http.StatusPermanentRedirect
	case !get:
		status = http.StatusTemporaryRedirect
	}
	redirectWith(w, target, status)
}

// redirectWith redirects with a status. A target that is empty or does not parse as a URL,
// which only unusual and hostile requests cause, is answered with 400.
func redirectWith(w http.ResponseWriter, target string, status int) {
	u, err := url.Parse(target)
	if err != nil || target == "" {
		refuse(w, http.StatusBadRequest)
		return
	}
	w.Header().Set("Location", u.String())
	refuse(w, status)
}
