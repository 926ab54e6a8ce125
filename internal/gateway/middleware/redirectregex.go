package middleware

import (
	"net/http"

	"fairlead/internal/model/gateway"
)

// newRedirectRegex redirects URLs that match an expression. It sees the whole URL:
// SCHEME://HOST[:PORT]/PATH[?QUERY], as the client wrote it.
func newRedirectRegex(_ *builder, v *gateway.RedirectRegex) (Func, error) {
	expression, replacement, err := compileReplacement(v.Regex, v.Replacement)
	if err != nil {
		return nil, err
	}
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
