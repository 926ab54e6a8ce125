package services

import (
	"context"
	"time"

	"fairlead/internal/daemon/stats"
	"fairlead/internal/health"
)

// observeEvery is the interval at which the daemon looks for failed connections of
// clients.
const observeEvery = 100 * time.Millisecond

// observe reports the success and failure of clients' connections to the checks, for
// services with passive checks, until ctx ends. Without such services it does nothing.
func (b *balancer) observe(ctx context.Context) {
	if b.services.cfg.CountReals == nil {
		return
	}
	var before stats.RealCounts
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.services.observed:
		case <-again:
		}
		again = nil
		if before = b.observeOnce(before); before != nil {
			again = time.After(observeEvery)
		}
	}
}

// observeOnce compares the counters with the earlier ones, and returns them. It
// returns nil if no service has passive checks.
func (b *balancer) observeOnce(before stats.RealCounts) stats.RealCounts {
	b.state.Lock()
	var passive []string
	for name, p := range b.services.pools {
		if p.Spec.Check.Passive {
			passive = append(passive, name)
		}
	}
	if len(passive) == 0 {
		b.state.Unlock()
		return nil
	}
	b.services.flows.readAt = time.Time{}
	b.services.flows.read()
	now := b.services.flows.counts
	b.state.Unlock()
	for _, name := range passive {
		for at, c := range now[name] {
			was, known := before[name][at]
			// Answered connections count too: a few failures among many connections
			// are caused by the clients.
			failed, answered := c.Failed-was.Failed, c.Begun-was.Begun
			if known && c.Failed >= was.Failed && c.Begun >= was.Begun && failed+answered > 0 {
				b.services.health.Signal(name, at, health.Signal{Failed: int(failed),
					Answered: int(answered - min(answered, failed))})
			}
		}
	}
	if now == nil {
		now = stats.RealCounts{}
	}
	return now
}
