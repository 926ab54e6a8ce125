package rewrite

import (
	"net/http"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewRedirectRegex redirects URLs that match an expression. It sees the whole URL:
// SCHEME://HOST[:PORT]/PATH[?QUERY], as the client wrote it. In the replacement, a group that the
// expression does not have is empty, as in Traefik.
func NewRedirectRegex(_ *base.Builder, v *gateway.RedirectRegex) (base.Func, error) {
	expression, err := base.CompileRegex(v.Regex)
	if err != nil {
		return nil, err
	}
	replacement := strings.TrimSpace(v.Replacement)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme := base.ForwardedProto(r)
			host, port := base.SplitHost(r.Host)
			from := base.URLOf(r, scheme, base.JoinHost(host, port, scheme))
			target := expression.ReplaceAllString(from, replacement)
			if from == "" || target == from {
				next.ServeHTTP(w, r)
				return
			}
			base.Redirect(w, r, target, v.Permanent)
		})
	}, nil
}
