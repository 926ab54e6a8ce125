package services

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/sandbox"
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
)

// balancer applies what changes about real servers while no request is made: events of
// containers, results of checks, and the ends of drains.
type balancer struct {
	state    *state.State
	services *Services
	// failed has the services whose changes could not be applied, with the time of the next attempt.
	failed heal.Retries
}

// run applies changes of real servers, and ends drains, until ctx ends.
func (b *balancer) run(ctx context.Context) {
	count := time.NewTicker(countEvery)
	defer count.Stop()
	save := time.NewTimer(0)
	defer save.Stop()
	var rested time.Time
	var again <-chan time.Time
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
		case <-again:
		}
		wait, err := b.rebalance()
		if err != nil {
			b.state.Log.Error("balance", "error", err)
		}
		if again = nil; wait > 0 {
			again = time.After(wait)
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
	b.state.Lock()
	defer b.state.Unlock()
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

// rebalance applies what has changed about real servers, and returns how long to wait before the next attempt; 0 if
// none is due. A service that fails does not stop the others, and is tried again after waits that grow.
func (b *balancer) rebalance() (wait time.Duration, err error) {
	err = b.services.cfg.Steps.Once(func() (err error) {
		b.services.takeHealthChanges()
		b.failed.Keep(func(name string) bool { return b.services.dirty[name] })
		// In random order, so that each is tried at some time.
		names := slices.Collect(maps.Keys(b.services.dirty))
		if names = slices.DeleteFunc(names, b.failed.Waits); len(names) > 0 {
			err = b.reapplyEach(names)
		}
		wait = b.failed.Next()
		return err
	})
	return wait, err
}

// reapplyEach applies the services together, and one by one if that fails.
func (b *balancer) reapplyEach(names []string) error {
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
			b.failed.Failed(name)
			if !sockets.AreUnopened(err) {
				b.services.reportStuck(name, err)
				failed = err
			}
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
	b.state.Lock()
	defer b.state.Unlock()
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

// followContainers follows containers, from the first service on.
func (b *balancer) followContainers(ctx context.Context) {
	if b.services.cfg.Containers == nil {
		return
	}
	select {
	case <-b.services.needed:
		b.services.cfg.Containers.FollowContainers(ctx, b.handleContainer)
	case <-ctx.Done():
	}
}

// handleContainer records the event of a container.
func (b *balancer) handleContainer(n sandbox.ContainerEvent) {
	b.state.Lock()
	defer b.state.Unlock()
	changed := map[string]any{}
	for _, ref := range n.Refs {
		before, known := b.services.containers[ref]
		c := before.After(n, time.Now())
		switch {
		case n.Gone && known:
			delete(b.services.containers, ref)
			changed[containerNote+ref] = nil
		case !n.Gone && !c.Equal(before):
			b.services.containers[ref] = c
			changed[containerNote+ref] = c
		}
	}
	if len(changed) == 0 {
		return
	}
	b.updateContainers(n.Refs, changed)
}

// updateContainers updates the services of containers, and saves the changed notes.
func (b *balancer) updateContainers(refs []string, changed map[string]any) {
	b.services.markDirty(b.servicesOf(refs)...)
	b.services.updateServers()
	if b.services.cfg.Passing != nil {
		b.state.Warn("save the state of a container", b.services.cfg.Passing.Put(changed))
	}
}

// servicesOf returns the services of which a container with these references is or may
// become a real server.
func (b *balancer) servicesOf(refs []string) (names []string) {
	endpoints := map[string]bool{}
	for _, a := range b.state.Desired().Attachments {
		if slices.Contains(refs, a.Ref) {
			endpoints[a.Name] = true
		}
	}
	for _, v := range b.state.Desired().Services {
		p := b.services.pools[v.Name]
		if pool.HasSelector(v) || p != nil &&
			slices.ContainsFunc(p.Members, func(m pool.Member) bool { return endpoints[m.Endpoint] }) {
			names = append(names, v.Name)
		}
	}
	return names
}

// endStops returns containers to service that still run after StopTimeout: they ignore
// the signal, or the engine has given up.
func (b *balancer) endStops() {
	b.state.Lock()
	defer b.state.Unlock()
	var refs []string
	changed, now := map[string]any{}, time.Now()
	for ref, c := range b.services.containers {
		c, runsOn := c.EndStop(now)
		if !runsOn {
			continue
		}
		b.services.containers[ref] = c
		changed[containerNote+ref] = c
		refs = append(refs, ref)
	}
	if len(refs) > 0 {
		b.updateContainers(refs, changed)
	}
}
