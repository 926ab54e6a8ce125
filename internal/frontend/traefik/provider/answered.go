package provider

import (
	"context"
	"fmt"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
)

// answered is the last good answer of an engine to one kind of question.
type answered[T any] struct {
	value T
	// ok means that there was an answer. what and err are the question and why the last one has none,
	// since that time.
	ok    bool
	what  string
	err   error
	since time.Time
	// wait is the time from the last failure to the next question of askLess, at next.
	wait time.Duration
	next time.Time
}

// shortly is how long the engine may take for what the gateway can go on without.
const shortly = 2 * time.Second

// askLess is ask for what the gateway can go on without. After failures it asks less and less often.
func (a *answered[T]) askLess(ctx context.Context, what string, e *dockerapi.Engine,
	get func(context.Context, *dockerapi.Engine) (T, error)) {
	if a.err != nil && time.Now().Before(a.next) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, shortly, dockerapi.ErrSlow)
	defer cancel()
	if a.ask(ctx, what, e, get) == nil {
		a.wait = 0
		return
	}
	a.wait = min(max(2*a.wait, soonestQuestion), latestQuestion)
	a.next = time.Now().Add(a.wait)
}

// ask asks again. It keeps the last good answer if there is an error, which it returns.
func (a *answered[T]) ask(ctx context.Context, what string, e *dockerapi.Engine,
	get func(context.Context, *dockerapi.Engine) (T, error)) error {
	value, err := get(ctx, e)
	switch {
	case err == nil:
		a.value, a.ok = value, true
	case a.err == nil:
		a.since = time.Now()
	}
	a.what, a.err = what, err
	return err
}

// problem returns why the answer is not a new one; "" if it is.
func (a *answered[T]) problem() string {
	switch {
	case a.err == nil:
		return ""
	case !a.ok:
		return fmt.Sprintf("read %s: %v (since %s): the gateway goes on without", a.what, a.err, traefik.Moment(a.since))
	}
	return fmt.Sprintf("read %s: %v (since %s); the last answer stays in use", a.what, a.err, traefik.Moment(a.since))
}
