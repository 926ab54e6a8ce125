package daemon

import (
	"context"
	"errors"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// Repair. If another program changes one of Fairlead's objects, the daemon repairs
// it as soon as the kernel reports the change. It reads only the changed objects:
// the watcher finds which objects of the engine's account a message is about, and
// the engine reads those from the kernel. If the kernel has dropped messages, all
// objects are read.
//
//	messages ──► pending events ──(50 ms)──► objects of the account that differ
//	checks   ──►                                  │
//	                            engine.HealPart ◄─┘──► events, log, meter

const (
	// together is how long to wait for further messages about the same change.
	together = 50 * time.Millisecond
	// checkEvery is the interval of the checks for changes that the kernel does not
	// report.
	checkEvery = 750 * time.Millisecond
)

// healer is the state of the repair.
type healer struct {
	watcher   *watch.Watcher
	conflicts heal.Conflicts
	// retry is when everything is repaired again after a failure.
	retry heal.Retry
}

// follow repairs the host until ctx ends.
func (d *Daemon) follow(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.applied:
			if d.watchSettings() {
				check.Reset(checkEvery)
			} else {
				check.Stop() // there is nothing to check
			}
			continue
		case <-check.C:
			if !d.check() {
				continue
			}
		case <-d.healer.watcher.Noted():
			select {
			case <-time.After(together):
			case <-ctx.Done():
				return
			}
		case <-later:
		}
		later = nil
		if wait := d.heal(ctx); wait > 0 {
			later = time.After(wait)
		}
	}
}

// watchSettings updates the host's sysctls that are checked, and reports whether
// anything needs checks.
func (d *Daemon) watchSettings() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	account := d.engine.Account()
	var settings []plan.Sysctl
	for _, o := range account {
		for _, s := range plan.LinkSettings(o) {
			if s.Netns == "" {
				settings = append(settings, s)
			}
		}
		if s, ok := o.(plan.Sysctl); ok && s.Netns == "" {
			settings = append(settings, s)
		}
	}
	d.warn("watch settings", d.healer.watcher.Settings(settings))
	return len(settings) > 0 || kernel.Polled(account)
}

// check reads the objects for which the kernel sends no messages, and reports whether
// one of them differs. It does nothing while a state is being applied.
func (d *Daemon) check() bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	return d.healer.watcher.Check()
}

// heal repairs what the pending events are about. again is when to call it again; 0
// means after the next event.
func (d *Daemon) heal(ctx context.Context) (again time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	defer func() { d.services.reportEnded(d.services.pools) }()
	seen := d.healer.watcher.Take()
	if seen.AddressesChanged() {
		d.warn("follow the host's addresses", d.cfg.Inspector.EBPF().RenewAddresses())
	}
	if seen.HostChanged() || seen.FirewallChanged() {
		d.recheckNetworks()
	}
	account := d.engine.Account()
	if seen.All() || d.healer.retry.Due() || account == nil && !d.healer.retry.Waits() || seen.LeftOver(account) {
		return d.healAll(ctx)
	}
	part := d.healer.conflicts.Due(account, seen.Concerned(account, d.sandboxes.namespaces()))
	if dead := d.sandboxes.deadIn(part); len(dead) > 0 {
		d.warn("remove what belonged to a sandbox", d.cleanUp(dead))
		account = d.engine.Account()
		part = d.healer.conflicts.Due(account, seen.Concerned(account, d.sandboxes.namespaces()))
	}
	if d.adoptExternals(part) {
		account = d.engine.Account()
		part = d.healer.conflicts.Due(account, seen.Concerned(account, d.sandboxes.namespaces()))
	}
	if len(part) == 0 {
		return d.healer.next()
	}
	if err := d.healPart(ctx, part, seen); err != nil {
		d.cfg.Log.Warn("repair what differs", "error", err)
		return d.healAll(ctx)
	}
	return d.healer.next()
}

// healPart repairs the objects. It skips an object that cannot be created, e.g.
// because another program's object is in its place, and tries that one again later.
func (d *Daemon) healPart(ctx context.Context, part plan.Plan, seen watch.PendingEvents) error {
	for {
		differing, err := d.engine.HealPart(ctx, part)
		var step *plan.StepError
		if !errors.As(err, &step) {
			d.report(differing, seen)
			return err
		}
		if e, first := d.healer.conflicts.Blocked(step); first {
			d.note(e)
		}
		if part = d.healer.conflicts.Free(part); len(part) == 0 {
			return nil
		}
	}
}

// next returns how long to wait before the next attempt, or 0 if none is due.
func (h *healer) next() time.Duration { return h.retry.Next(h.conflicts.Next()) }

// healAll reads and repairs all objects.
func (d *Daemon) healAll(ctx context.Context) time.Duration {
	differing, err := d.engine.Heal(ctx)
	if err == nil {
		d.report(differing, watch.PendingEvents{})
	} else if err = d.settle(d.desired); err != nil { // settle omits sandboxes that have ended
		if assumed := d.engine.Assume(); assumed == nil {
			err = d.healPart(ctx, d.engine.Account(), watch.PendingEvents{})
		}
	}
	if err == nil {
		d.healer.retry.Succeeded()
		d.networks.forgetKeptAddresses()
		return d.healer.next()
	}
	if d.healer.retry.Failed() {
		d.note(api.Event{Kind: api.Unhealed, Object: "host", Detail: err.Error()})
	}
	return d.healer.next()
}
