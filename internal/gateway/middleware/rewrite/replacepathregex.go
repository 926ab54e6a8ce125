package rewrite

import (
	"net/http"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewReplacePathRegex replaces paths that match an expression, and sends the old one in
// X-Replaced-Path. The expression sees the encoded path without the query. A result that
// is not a valid path, or has an empty segment, is answered with 400.
func NewReplacePathRegex(_ *base.Builder, v *gateway.ReplacePathRegex) (base.Func, error) {
	expression, err := base.CompileRegex(v.Regex)
	if err != nil {
		return nil, err
	}
	replacement := strings.TrimSpace(v.Replacement)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path := r.URL.EscapedPath()
			if !expression.MatchString(path) {
				next.ServeHTTP(w, r)
				return
			}
			path = expression.ReplaceAllString(path, replacement)
			if strings.Contains(path, "//") || !replacePath(r, path) {
				base.Refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
