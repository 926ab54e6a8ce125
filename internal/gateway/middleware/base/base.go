// Package base has what the middlewares share: what their constructors get, and tools for headers, paths, addresses of
// clients, expressions and the writers of responses.
//
// It contains no middleware.
package base

import (
	"errors"
	"net/http"
	"time"
)

// Func wraps a handler in a middleware.
type Func = func(http.Handler) http.Handler

// Builder has what the constructors of middlewares need.
type Builder struct {
	// Service returns the handler of a service, for error pages. It is nil if there are none.
	Service func(name string) (http.Handler, error)
	// Now is the time.
	Now func() time.Time
	// Depends says that the middleware depends on more than its value: on other objects, or
	// on files.
	Depends bool
}

// ErrNoOption is the cause if a middleware without any option would do nothing.
var ErrNoOption = errors.New("no option is set")

// Refuse answers a request with a status and its text.
func Refuse(w http.ResponseWriter, status int) {
	http.Error(w, http.StatusText(status), status)
}

// ErrTooLarge is the error for a body over a configured limit.
var ErrTooLarge = errors.New("the body is larger than the limit")

// Sleep waits, and returns false if the client has gone meanwhile.
func Sleep(r *http.Request, wait time.Duration) bool {
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-timer.C:
		return true
	}
}
