package middleware

import (
	"errors"
	"net/http"
	"net/url"

	"fairlead/internal/model/gateway"
)

// headerReplacedPath has the path that a middleware has replaced.
const headerReplacedPath = "X-Replaced-Path"

// newReplacePath replaces the path, and sends the old one in X-Replaced-Path.
func newReplacePath(_ *builder, v *gateway.ReplacePath) (Func, error) {
	path, err := url.PathUnescape(v.Path)
	if v.Path == "" || err != nil || hasDotSegment(path) {
		return nil, errors.New("set path to a path such as /app, without dot segments")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !replacePath(r, v.Path) {
				refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// replacePath sets a request's path and X-Replaced-Path. It returns false if the path is
// not valid.
func replacePath(r *http.Request, path string) bool {
	old := r.URL.EscapedPath()
	if !setPath(r, withSlash(path)) {
		return false
	}
	setTrusted(r.Header, headerReplacedPath, old)
	return true
}
