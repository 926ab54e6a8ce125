package rewrite

import (
	"errors"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewAddPrefix puts a prefix before the path.
func NewAddPrefix(_ *base.Builder, v *gateway.AddPrefix) (base.Func, error) {
	if v.Prefix == "" || base.HasDotSegment(v.Prefix) {
		return nil, errors.New("set prefix to a path such as /app, without dot segments")
	}
	prefix := base.EscapePath(base.WithSlash(v.Prefix))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !base.SetPath(r, prefix+r.URL.EscapedPath()) {
				base.Refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
