package acme

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/recovery"

	protocol "github.com/mholt/acmez/v3/acme"
)

// Run obtains and renews certificates until the context ends.
func (m *Manager) Run(ctx context.Context) {
	defer m.working.Wait()
	for {
		timer := time.NewTimer(m.startDue(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// startDue starts the attempts that are due, and returns the time until the next one is.
func (m *Manager) startDue(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	sleep := alarm.Longest // the clock of the host may be set, or the host suspended
	for _, key := range slices.Sorted(maps.Keys(m.certificates)) {
		c := m.certificates[key]
		if c.running || c.blocked || c.problem != "" {
			continue
		}
		if wait := time.Until(c.next()); wait > 0 {
			sleep = min(sleep, wait)
			continue
		}
		select {
		case m.slots <- struct{}{}:
		default:
			return sleep // an attempt that ends wakes the loop
		}
		c.running = true
		m.working.Go(func() {
			defer m.wake.Send()
			defer func() { <-m.slots }()
			m.tryCarefully(ctx, c)
		})
	}
	return sleep
}

// tryCarefully makes one attempt, and notes one that panics as failed. An attempt calls nothing that can panic while it
// has locked mu, and the storage has had it as failed since it began.
func (m *Manager) tryCarefully(ctx context.Context, c *certificate) {
	err := recovery.Object("certificate for "+strings.Join(c.names, ", "), func() { m.try(ctx, c) })
	if err == nil {
		return
	}
	m.mu.Lock()
	c.running, c.blocked, c.attempt = false, false, c.attempt.fail(time.Now(), m.Backoff, err.Error(), 0)
	m.mu.Unlock()
	_ = m.Changed(ctx) // shows the state
}

// try makes one attempt.
func (m *Manager) try(ctx context.Context, c *certificate) {
	if m.resolvers[c.resolver].shared != nil {
		m.tryShared(ctx, c)
		return
	}
	m.attempt(ctx, ctx, c, 0)
}

// tryShared makes one attempt, unless the gateway of another host makes it or has made it.
func (m *Manager) tryShared(ctx context.Context, c *certificate) {
	r := m.resolvers[c.resolver]
	lock := r.store.key(certificateKind, idOf(c.names))
	m.mu.Lock()
	c.blocked = true // until Refresh is called, which may be before Try has returned
	m.mu.Unlock()
	held, interrupted, err := r.shared.Try(ctx, lock)
	if err != nil {
		m.wait(ctx, c, err)
		return
	}
	defer func() {
		if err := r.shared.Unlock(ctx, lock); err != nil {
			m.Log.Warn("another host can obtain the certificate a while later", "names", strings.Join(c.names, ","),
				"error", err)
		}
	}()
	m.mu.Lock()
	m.read(r, lock) // what the last holder has written
	due := time.Until(c.next()) <= 0
	c.running, c.blocked = due, false
	m.mu.Unlock()
	if !due {
		_ = m.Changed(ctx) // it reports its errors itself
		return
	}
	m.attempt(ctx, held, c, interrupted)
}

// wait notes why an attempt cannot begin. Refresh ends the wait. If it was called since the attempt began, the loop makes
// the next attempt.
func (m *Manager) wait(ctx context.Context, c *certificate, why error) {
	m.mu.Lock()
	refreshed := !c.blocked
	same := c.waiting != nil && c.waiting.Error() == why.Error()
	c.running = false
	if !refreshed {
		c.waiting = why
	}
	m.mu.Unlock()
	if same && !refreshed || ctx.Err() != nil {
		return
	}
	if !refreshed && !isBusy(why) {
		m.Log.Warn("a certificate waits", "names", strings.Join(c.names, ","), "error", why)
	}
	_ = m.Changed(ctx) // it reports its errors itself
}

// longestAttempt limits an attempt: records of DNS may take minutes to be seen.
const longestAttempt = 15 * time.Minute

// attempt makes one attempt while lock lasts. It is stored as failed before it begins: a gateway that fails
// during attempts and is started again must not repeat them at once. In a shared storage, the lock that
// such a gateway leaves has the same purpose.
func (m *Manager) attempt(ctx, lock context.Context, c *certificate, interrupted int) {
	r := m.resolvers[c.resolver]
	id := idOf(c.names)
	m.mu.Lock()
	before, old := c.attempt, c.held
	m.mu.Unlock()
	begun := before
	begun.Names, begun.Settings = c.names, r.settings
	_ = m.Changed(ctx) // shows the state; the attempt goes on without it
	mayLog := func(err error) {
		if err != nil {
			m.Log.Error("cannot write the storage of certificates", "resolver", c.resolver, "error", err)
		}
	}
	if r.shared == nil {
		mayLog(r.store.save(ctx, begun.fail(time.Now(), m.Backoff, "the gateway ended during the attempt", 0),
			attemptKind, id))
	}
	limits := &retryAfter{}
	var got *held
	err := errInterrupted
	if interrupted < mostInterrupted {
		got, err = m.obtain(lock, r, c.names, old, limits)
	}
	lasting := context.WithoutCancel(ctx)
	if err == nil {
		err = r.store.save(lasting, got.stored, certificateKind, id)
	}
	switch {
	case err == nil:
		begun = attempt{}
		mayLog(r.store.Delete(lasting, r.store.key(attemptKind, id)))
		m.Log.Info("obtained a certificate", "names", strings.Join(c.names, ","), "resolver", c.resolver, "until",
			got.leaf.NotAfter)
	case lock.Err() != nil && ctx.Err() == nil: // another gateway makes the next attempt
		m.wait(ctx, c, fmt.Errorf("%w: %w", err, context.Cause(lock)))
		return
	case ctx.Err() != nil: // the gateway stops: the attempt does not count
		begun = before
		switch {
		case r.shared != nil: // nothing was stored
		case before.Failures > 0:
			mayLog(r.store.save(lasting, before, attemptKind, id))
		default:
			mayLog(r.store.Delete(lasting, r.store.key(attemptKind, id)))
		}
	default:
		begun = begun.fail(time.Now(), m.Backoff, err.Error(), limits.get())
		mayLog(r.store.save(lasting, begun, attemptKind, id))
		m.Log.Error("cannot obtain a certificate", "names", strings.Join(c.names, ","), "resolver", c.resolver,
			"error", err, "next attempt", begun.Next)
	}
	m.mu.Lock()
	c.running, c.attempt = false, begun
	if got != nil {
		r.stored[setOf(c.names)] = got
		c.held, c.renewal = got, renewalOf(got.leaf)
	}
	m.mu.Unlock()
	_ = m.Changed(lasting) // it reports its errors itself
}

// obtain obtains a certificate.
func (m *Manager) obtain(ctx context.Context, r *resolver, names []string, old *held, limits *retryAfter) (*held,
	error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	client := r.client(limits)
	client.ChallengeSolvers = m.challenges.solvers(r.value, r.dns.AsSolver())
	if r.shared != nil {
		solver := sharedSolver{r.shared, r.store.key(certificateKind, idOf(names))}
		for _, kind := range []string{protocol.ChallengeTypeHTTP01, protocol.ChallengeTypeTLSALPN01} {
			if client.ChallengeSolvers[kind] != nil {
				client.ChallengeSolvers[kind] = solver
			}
		}
	}
	got, err := r.issue(ctx, client, names, old)
	if err != nil {
		return nil, fmt.Errorf("obtain a certificate from %s: %w", r.value.CAServer, err)
	}
	return got, nil
}
