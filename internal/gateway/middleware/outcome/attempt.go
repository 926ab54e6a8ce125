package outcome

import (
	"context"
	"net/http"
)

// Attempt is one try of a request that can be sent again. The proxy obtains it with
// AttemptOf, sends the request to another server than the attempts before, and reports
// if it got no response. An attempt belongs to one goroutine.
type Attempt struct {
	// Number begins with 1.
	Number int
	// Tried has the servers of the attempts before, as the proxy has recorded them with
	// Use.
	Tried []string

	Failed, Sent bool
}

type attemptKey struct{}

// AttemptOf returns the attempt that a request is, or nil if it is sent only once. All
// methods accept nil.
func AttemptOf(r *http.Request) *Attempt {
	attempt, _ := r.Context().Value(attemptKey{}).(*Attempt)
	return attempt
}

// WithoutAttempt returns a context for a copy of a request that another goroutine sends: an attempt belongs to one.
func WithoutAttempt(ctx context.Context) context.Context {
	return context.WithValue(ctx, attemptKey{}, (*Attempt)(nil))
}

// Use records the server that the attempt uses.
func (a *Attempt) Use(server string) {
	if a != nil {
		a.Tried = append(a.Tried, server)
	}
}

// Fail records that the server sent no response, before the proxy writes its own. It says
// whether a part of the request may have reached the server.
func (a *Attempt) Fail(sent bool) {
	if a != nil {
		a.Failed, a.Sent = true, sent
	}
}

// Next returns the next attempt, and a copy of the request for it.
func (a *Attempt) Next(r *http.Request) (*Attempt, *http.Request) {
	next := &Attempt{Number: a.Number + 1, Tried: a.Tried}
	return next, r.Clone(context.WithValue(r.Context(), attemptKey{}, next))
}
