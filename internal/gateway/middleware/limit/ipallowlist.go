package limit

import (
	"errors"
	"fmt"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// NewIPAllowList accepts clients whose address is in one of the prefixes. A request
// without a valid address is refused.
func NewIPAllowList(_ *base.Builder, v *gateway.IPAllowList) (base.Func, error) {
	if len(v.SourceRange) == 0 {
		return nil, errors.New("sourceRange is empty: no client would be accepted")
	}
	allowed, err := base.ParsePrefixes(v.SourceRange)
	if err != nil {
		return nil, fmt.Errorf("read sourceRange: %w", err)
	}
	address, err := base.NewClientAddress(v.IPStrategy)
	if err != nil {
		return nil, err
	}
	status := v.RejectStatusCode
	if status == 0 {
		status = http.StatusForbidden
	}
	if http.StatusText(status) == "" || status < 200 {
		return nil, fmt.Errorf("use rejectStatusCode %d: it is not a status of HTTP responses", status)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !base.Contains(allowed, address(r)) {
				base.Refuse(w, status)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
