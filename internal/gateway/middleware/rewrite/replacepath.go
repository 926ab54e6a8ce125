package rewrite

import (
	"errors"
	"net/http"
	"net/url"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// headerReplacedPath has the path that a middleware has replaced.
const headerReplacedPath = "X-Replaced-Path"

// NewReplacePath replaces the path, and sends the old one in X-Replaced-Path.
func NewReplacePath(_ *base.Builder, v *gateway.ReplacePath) (base.Func, error) {
	path, err := url.PathUnescape(v.Path)
	if v.Path == "" || err != nil || base.HasDotSegment(path) {
		return nil, errors.New("set path to a path such as /app, without dot segments")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !replacePath(r, v.Path) {
				base.Refuse(w, http.StatusBadRequest)
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
	if !base.SetPath(r, base.WithSlash(path)) {
		return false
	}
	base.SetTrusted(r.Header, headerReplacedPath, old)
	return true
}
