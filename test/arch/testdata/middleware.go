package rewrite

import (
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewTrial sets a field of the response.
func NewTrial(_ *base.Builder, v *gateway.Trial) (base.Func, error) {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Trial", v.Text)
			next.ServeHTTP(w, r)
		})
	}, nil
}
