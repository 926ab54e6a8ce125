package middleware

import (
	"errors"
	"net/http"

	"fairlead/internal/model/gateway"
)

// newAddPrefix puts a prefix before the path.
func newAddPrefix(_ *builder, v *gateway.AddPrefix) (Func, error) {
	if v.Prefix == "" || hasDotSegment(v.Prefix) {
		return nil, errors.New("set prefix to a path such as /app, without dot segments")
	}
	prefix := escapePath(withSlash(v.Prefix))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !setPath(r, prefix+r.URL.EscapedPath()) {
				refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
