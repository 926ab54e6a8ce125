package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// countEvery is the interval at which the flows of draining servers are counted.
	countEvery = time.Second
	// uncounted is the length of a drain without a deadline if the data plane does not
	// count flows.
	uncounted = time.Minute
	// saveRest limits how often health is saved: the pause is saveRest times as long
	// as the last save took.
	saveRest = 20
	// reapplyAfter is the wait after a failure.
	reapplyAfter = time.Second
)

// balancer applies what changes about real servers while no request is made: events of
// containers, results of checks, and the ends of drains.
type balancer struct {
	*state
	services *services
}

// run applies changes of real servers, and ends drains, until ctx ends.
func (b *balancer) run(ctx context.Context) {
	count := time.NewTicker(countEvery)
	defer count.Stop()
	save := time.NewTimer(0)
	defer save.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			b.services.saveHealth()
			return
		case <-b.services.woken:
			if b.idle() {
				count.Stop()
			} else {
				count.Reset(countEvery)
			}
		case <-count.C:
			b.endDrains()
			b.endStops()
		case <-save.C:
		}
		if err := b.rebalance(); err != nil {
			b.cfg.Log.Error("balance", "error", err)
			select {
			case <-time.After(reapplyAfter):
				b.services.wake()
			case <-ctx.Done():
			}
		}
		// Without the saved health, a later process would not use a server that is up
		// until it has checked it.
		if now := time.Now(); now.Before(rested) {
			save.Reset(rested.Sub(now))
		} else {
			b.services.saveHealth()
			rested = time.Now().Add(saveRest * time.Since(now))
		}
	}
}

// idle reports whether no drain and no stop of a container is in progress.
func (b *balancer) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, drain := range b.services.drains {
		if drain.Ended.IsZero() {
			return false
		}
	}
	for _, c := range b.services.containers {
		if c.Ending() {
			return false
		}
	}
	return true
}

// rebalance applies what has changed about real servers. A service that fails does not
// stop the others.
func (b *balancer) rebalance() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.services.takeHealthChanges()
	names := slices.Collect(maps.Keys(b.services.dirty)) // in random order, so that each is tried at some time
	if len(names) == 0 {
		return nil
	}
	err := b.services.reapply(names...)
	if err == nil {
		return nil
	}
	var failed error
	for i, name := range names {
		if len(names) > 1 && i < maxSingly {
			err = b.services.reapply(name)
		}
		if err != nil {
			b.services.reportStuck(name, err)
			failed = err
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("apply what has changed about real servers: %w", failed)
}

// maxSingly is the number of services that are applied one by one after a failure,
// while other requests wait.
const maxSingly = 20

// endDrains ends the drains whose flows have ended, or whose deadline has passed.
func (b *balancer) endDrains() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.services.flows.read()
	for key, drain := range b.services.drains {
		if !drain.Ended.IsZero() {
			continue
		}
		live := b.services.flows.live(key)
		switch {
		case live != nil && *live == 0 && now.Sub(drain.Since) >= countEvery:
			drain.Cause += "; its flows have ended"
		case !drain.Deadline.IsZero() && now.After(drain.Deadline):
			drain.Cause += "; its deadline has passed"
		case live == nil && drain.Deadline.IsZero() && now.Sub(drain.Since) > uncounted:
			drain.Cause += "; its flows are not counted"
		default:
			continue
		}
		drain.Ended = now
		b.services.markDirty(key.Service)
		b.services.saveDrains(key)
	}
}
