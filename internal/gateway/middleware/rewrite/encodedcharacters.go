package rewrite

import (
	"net/http"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewEncodedCharacters answers paths with encoded characters that are not allowed with
// 400.
func NewEncodedCharacters(_ *base.Builder, v *gateway.EncodedCharacters) (base.Func, error) {
	denied := DeniedCharacters(v)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if denied(r.URL.EscapedPath()) {
				base.Refuse(w, http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// DeniedCharacters returns a function that reports whether an escaped path has encoded
// characters that are not allowed. Servers decode them at different times and then see
// other segments (CVE-2025-66490).
func DeniedCharacters(v *gateway.EncodedCharacters) func(path string) bool {
	denied := map[string]bool{
		"2F": !v.AllowEncodedSlash, "5C": !v.AllowEncodedBackSlash, "00": !v.AllowEncodedNullCharacter,
		"3B": !v.AllowEncodedSemicolon, "25": !v.AllowEncodedPercent, "3F": !v.AllowEncodedQuestionMark,
		"23": !v.AllowEncodedHash,
	}
	return func(path string) bool {
		_, rest, found := strings.Cut(path, "%")
		for ; found; _, rest, found = strings.Cut(rest, "%") {
			if len(rest) < 2 || denied[strings.ToUpper(rest[:2])] {
				return true
			}
		}
		return false
	}
}
