package middleware

import (
	"net/http"
	"strings"

	"fairlead/internal/model/gateway"
)

// newReplacePathRegex replaces paths that match an expression, and sends the old one in
// X-Replaced-Path. The expression sees the encoded path without the query. A result that
// is not a valid path, or has an empty segment, is answered with 400.
func newReplacePathRegex(_ *builder, v *gateway.ReplacePathRegex) (Func, error) {
	expression, err := compileRegex(v.Regex)
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
				refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
