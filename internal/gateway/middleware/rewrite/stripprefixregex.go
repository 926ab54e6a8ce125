package rewrite

import (
	"net/http"
	"regexp"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewStripPrefixRegex removes what the first of the expressions matches at the begin of
// the decoded path. The path may become empty: addPrefix then adds no slash, as in Traefik.
func NewStripPrefixRegex(_ *base.Builder, v *gateway.StripPrefixRegex) (base.Func, error) {
	var expressions []*regexp.Regexp
	for _, text := range v.Regex {
		expression, err := base.CompileRegex(text)
		if err != nil {
			return nil, err
		}
		expressions = append(expressions, expression)
	}
	if len(expressions) == 0 {
		return nil, base.ErrNoOption
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, expression := range expressions {
				found := expression.FindStringIndex(r.URL.Path)
				if found == nil || found[0] != 0 || found[1] == 0 {
					continue
				}
				if !base.StripPath(r, r.URL.Path[:found[1]], true) {
					base.Refuse(w, http.StatusBadRequest)
					return
				}
				break
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
