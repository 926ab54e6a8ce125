package middleware

import (
	"net/http"
	"time"

	"fairlead/internal/model/gateway"
)

// New returns the middleware of a value. It fails if the value has no field, more than
// one, or an invalid one; the error names the middleware. The caller builds one per
// router: a middleware with a state, such as a rate, does not share it with another
// router. Deps.Last and Deps.Next carry states from one configuration to the next.
func New(name string, value *gateway.Middleware, deps Deps) (func(http.Handler) http.Handler, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return (&builder{Deps: deps, kinds: kinds}).build(name, value)
}
