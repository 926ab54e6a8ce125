// Package rewrite has the middlewares that change or refuse the target of a request: prefixes, paths, redirections,
// encoded characters.
package rewrite

import (
	"errors"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewRedirectScheme redirects to the same URL with another scheme or port. Requests that
// have both already pass.
func NewRedirectScheme(_ *base.Builder, v *gateway.RedirectScheme) (base.Func, error) {
	if v.Scheme == "" {
		return nil, errors.New("the scheme is missing: set it to https")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme := base.ForwardedProto(r)
			host, port := base.SplitHost(r.Host)
			target := base.URLOf(r, v.Scheme, base.JoinHost(host, v.Port, v.Scheme))
			if target != "" && target == base.URLOf(r, scheme, base.JoinHost(host, port, scheme)) {
				next.ServeHTTP(w, r)
				return
			}
			base.Redirect(w, r, target, v.Permanent)
		})
	}, nil
}
