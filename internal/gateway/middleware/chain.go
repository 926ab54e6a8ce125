package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// newChain applies middlewares in order: the first receives requests first. A chain that
// contains itself, directly or through another chain, is an error.
func newChain(b *builder, value *gateway.Middleware) (base.Func, error) {
	v := value.Chain
	if v == nil {
		return nil, nil
	}
	if len(v.Middlewares) == 0 {
		return nil, base.ErrNoOption
	}
	if b.Middleware == nil {
		return nil, errors.New("no other middleware can be used here")
	}
	b.part.Depends = true
	var parts []base.Func
	for _, name := range v.Middlewares {
		qualified, value, err := b.Middleware(name)
		if err != nil {
			return nil, fmt.Errorf("use middleware %q: %w", name, err)
		}
		part, err := b.build(qualified, value)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return func(next http.Handler) http.Handler {
		for _, part := range slices.Backward(parts) {
			next = part(next)
		}
		return next
	}, nil
}
