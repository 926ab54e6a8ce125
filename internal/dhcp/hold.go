package dhcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/alarm"
)

const (
	// tries is how many offered addresses may be in use before the first lease
	// fails. RFC 2131 requires ten seconds between them, so that clients do not ask
	// forever.
	tries = 3
	// The pauses between attempts to replace a lost lease.
	firstPause, longestPause = 10 * time.Second, 5 * time.Minute
	// leastPause is the pause between attempts to renew a lease (RFC 2131, 4.4.5).
	leastPause = time.Minute
)

// maintain is Run with a given exchanger.
func maintain(ctx context.Context, x exchanger, c Config, notify func(Lease)) error {
	g, err := first(ctx, x)
	if err != nil && c.Failed != nil && !errors.Is(err, ErrGone) && ctx.Err() == nil {
		c.Failed(err)
		ended := !c.Ends.IsZero() && !x.now().Before(c.Ends) // while no server answered
		if ended || c.Last.IsValid() && errors.Is(err, errConflict) {
			notify(Lease{})
			c.Ends = time.Time{}
		}
		g, err = again(ctx, x, c.Ends, func() { notify(Lease{}) })
	}
	for err == nil {
		notify(g.Lease)
		if g, err = keep(ctx, x, g, notify); err == nil && !g.IsZero() {
			continue // another lease
		}
		if err == nil {
			notify(Lease{})
			g, err = again(ctx, x, time.Time{}, nil)
		}
	}
	if ctx.Err() != nil && !g.IsZero() {
		return x.release(g)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// first requests the first lease.
func first(ctx context.Context, x exchanger) (g grant, err error) {
	for range tries {
		g, err = x.acquire(ctx)
		if !errors.Is(err, errConflict) {
			break
		}
	}
	switch {
	case errors.Is(err, ErrNoServer):
		err = fmt.Errorf("%w: check that the network behind the link (parent, VLAN, bridge) has one, or give an address", err)
	case errors.Is(err, errConflict):
		err = fmt.Errorf("%w, like the addresses offered before: remove the hosts that use addresses of the server's range, or shrink the range", err)
	}
	return g, err
}

// again requests a new lease after a loss, until it gets one. It fails only if ctx
// or the sandbox ends. It calls ended when an earlier lease ends meanwhile, unless that time is zero.
func again(ctx context.Context, x exchanger, ends time.Time, ended func()) (grant, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		g, err := x.acquire(ctx)
		if err == nil || errors.Is(err, ErrGone) || ctx.Err() != nil {
			return g, err
		}
		next := x.now().Add(pause)
		if !ends.IsZero() && !next.Before(ends) {
			if err := sleep(ctx, x, ends); err != nil {
				return grant{}, err
			}
			ended()
			ends = time.Time{}
		}
		if err := sleep(ctx, x, next); err != nil {
			return grant{}, err
		}
	}
}

// keep renews a lease in time. It returns another lease if the server grants
// another address, the zero lease after a loss, and the lease with ctx's error when
// ctx ends.
func keep(ctx context.Context, x exchanger, g grant, notify func(Lease)) (grant, error) {
	var tried time.Time
	for {
		at, how := g.next(tried)
		if err := sleep(ctx, x, at); err != nil {
			return g, err
		}
		if how == expire || g.ended(x.now()) { // while the host was suspended (RFC 2131, section 4.4.5)
			return grant{}, nil
		}
		tried = x.now()
		more, err := x.extend(ctx, g, how == rebind)
		switch {
		case ctx.Err() != nil:
			return g, ctx.Err()
		case errors.Is(err, errRefused):
			return grant{}, nil
		case errors.Is(err, ErrGone):
			return grant{}, err
		case err == nil && more.Prefixes[0] != g.Prefixes[0]:
			return more, nil
		case err == nil:
			g, tried = more, time.Time{}
			notify(g.Lease)
		}
	}
}

func (l Lease) ended(now time.Time) bool { return !l.Expires.IsZero() && !now.Before(l.Expires) }

// step is the next step in the life of a lease.
type step int

const (
	renew step = iota
	rebind
	expire
)

// next returns the next step of the lease and its time. tried is the time of the
// last failed renewal; the next attempt follows after half of the remaining time,
// but at least after a minute.
func (l Lease) next(tried time.Time) (at time.Time, how step) {
	if l.Expires.IsZero() {
		return time.Time{}, expire
	}
	after := func(end time.Time) time.Time {
		return tried.Add(max(end.Sub(tried)/2, leastPause))
	}
	at, how = l.Renew, renew
	if !tried.IsZero() {
		at = after(l.Rebind)
	}
	if !at.Before(l.Rebind) || !tried.Before(l.Rebind) {
		at, how = l.Rebind, rebind
		if !tried.Before(l.Rebind) {
			at = after(l.Expires)
		}
	}
	if !at.Before(l.Expires) {
		return l.Expires, expire
	}
	return at, how
}

// sleep waits until the given time by the exchanger's clock, or forever if it is zero. If ctx ends first, it returns
// ctx's error.
func sleep(ctx context.Context, x exchanger, until time.Time) error {
	if until.IsZero() {
		<-ctx.Done()
		return ctx.Err()
	}
	return alarm.Until(ctx, func() time.Duration { return until.Sub(x.now()) })
}
