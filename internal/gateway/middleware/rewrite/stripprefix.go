package rewrite

import (
	"net/http"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewStripPrefix removes the first of the prefixes that a path begins with. A prefix is
// compared byte by byte with the decoded path: /api is a prefix of /apis.
func NewStripPrefix(_ *base.Builder, v *gateway.StripPrefix) (base.Func, error) {
	var prefixes []string
	for _, prefix := range v.Prefixes {
		if prefix = strings.TrimSpace(prefix); prefix != "" {
			prefixes = append(prefixes, prefix)
		}
	}
	if len(prefixes) == 0 {
		return nil, base.ErrNoOption
	}
	mayBeEmpty := v.ForceSlash == nil || !*v.ForceSlash
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, prefix := range prefixes {
				if !strings.HasPrefix(r.URL.Path, prefix) {
					continue
				}
				if !base.StripPath(r, prefix, mayBeEmpty) {
					base.Refuse(w, http.StatusBadRequest)
					return
				}
				break
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
