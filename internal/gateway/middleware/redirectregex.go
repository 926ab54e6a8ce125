package middleware

import (
	"net/http"
	"strings"

	"fairlead/internal/model/gateway"
)

// newRedirectRegex redirects URLs that match an expression. It sees the whole URL:
// SCHEME://HOST[:PORT]/PATH[?QUERY], as the client wrote it. In the replacement, a group that the
// expression does not have is empty, as in Traefik.
func newRedirectRegex(_ *builder, v *gateway.RedirectRegex) (Func, error) {
	expression, err := compileRegex(v.Regex)
	if err != nil {
		return nil, err
	}
	replacement := strings.TrimSpace(v.Replacement)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme := forwardedProto(r)
			host, port := splitHost(r.Host)
			from := urlOf(r, scheme, joinHost(host, port, scheme))
			target := expression.ReplaceAllString(from, replacement)
			if from == "" || target == from {
				next.ServeHTTP(w, r)
				return
			}
			redirect(w, r, target, v.Permanent)
		})
	}, nil
}
