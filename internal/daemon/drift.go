package daemon

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// Healing. What somebody else changes of ours on the host is put right as soon
// as the kernel tells of it, and nothing but that is looked at: the watcher
// says which objects of the engine's account a change was about, and the engine
// asks the kernel about those. Where the kernel has lost messages, everything
// is looked at.
//
//	messages ──► sightings ──(50 ms)──► those of the account that differ
//	checks   ──►                             │
//	                       engine.HealPart ◄─┘──► events, log, meter

const (
	// together is how long is waited for what belongs to one change.
	together = 50 * time.Millisecond
	// checkEvery is how often is looked at what the kernel tells nobody of.
	checkEvery = 750 * time.Millisecond
	// retryFirst and retryLast bound the waits after a failure.
	retryFirst, retryLast = time.Second, 30 * time.Second
)

// healer is what the daemon must know to heal.
type healer struct {
	watcher *kernel.Watcher
	// wakeup has an element when what is held may be another.
	wakeup    chan struct{}
	conflicts conflicts
	// failed is the wait before everything is tried again, 0 when all is well.
	failed time.Duration
	// retry is when that wait ends.
	retry time.Time
}

// follow heals until ctx ends.
func (d *Daemon) follow(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.healer.wakeup:
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

// holdsOther has follow see what is held now.
func (d *Daemon) holdsOther() {
	select {
	case d.healer.wakeup <- struct{}{}:
	default:
	}
}

// watchSettings has the sysctls of the host checked that are held now, and
// reports whether there is anything to check.
func (d *Daemon) watchSettings() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var settings []plan.Sysctl
	services := false
	for _, o := range d.engine.Account() {
		for _, s := range plan.LinkSettings(o) {
			if s.Netns == "" {
				settings = append(settings, s)
			}
		}
		switch o := o.(type) {
		case plan.Sysctl:
			if o.Netns == "" {
				settings = append(settings, o)
			}
		case plan.Uplinks, plan.LocalRealEgress, plan.FastPath, plan.Ingress, plan.LocalClients, plan.BindHooks, plan.EBPFMapping, plan.Grant, plan.EBPFService, plan.FilterChain:
			services = true
		}
	}
	d.warn("watch settings", d.healer.watcher.Settings(settings))
	return services || len(settings) > 0
}

// check reports whether something has strayed that the kernel does not tell of;
// not while something is being applied.
func (d *Daemon) check() bool {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	return d.healer.watcher.Check()
}

// heal puts right what the sightings are about, and says when to come again.
func (d *Daemon) heal(ctx context.Context) (again time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	defer func() { d.reportEnded(d.services.pools) }()
	seen := d.healer.watcher.Take()
	if seen.AddressesChanged() {
		d.warn("follow the host's addresses", d.cfg.Host.RenewAddresses())
	}
	if seen.HostChanged() || seen.FirewallChanged() {
		d.reunite()
	}
	account := d.engine.Account()
	waits := time.Until(d.healer.retry) > 0
	if seen.All() || d.healer.failed > 0 && !waits || account == nil && !waits || seen.LeftOver(account) {
		return d.healAll(ctx)
	}
	part := d.healer.conflicts.due(account, seen.Concerned(account, d.namespaces()))
	if dead := d.deadIn(part); len(dead) > 0 {
		d.warn("take away what was a sandbox's", d.cleanUp(dead))
		account = d.engine.Account()
		part = d.healer.conflicts.due(account, seen.Concerned(account, d.namespaces()))
	}
	if d.adoptExternals(part) {
		account = d.engine.Account()
		part = d.healer.conflicts.due(account, seen.Concerned(account, d.namespaces()))
	}
	if len(part) == 0 {
		return d.healer.next()
	}
	if err := d.healPart(ctx, part, seen); err != nil {
		d.cfg.Log.Warn("put right what has strayed", "error", err)
		return d.healAll(ctx)
	}
	return d.healer.next()
}

// healPart puts right the objects. What cannot be made, because something of
// somebody else is in its place, is left and tried again later.
func (d *Daemon) healPart(ctx context.Context, part plan.Plan, seen kernel.PendingEvents) error {
	for {
		differing, err := d.engine.HealPart(ctx, part)
		var step *engine.StepError
		if !errors.As(err, &step) {
			d.report(differing, seen)
			return err
		}
		d.blockedBy(step)
		if part = d.healer.conflicts.free(part); len(part) == 0 {
			return nil
		}
	}
}

// next returns how long it is until something is to be looked at again, 0 when
// nothing is.
func (h *healer) next() time.Duration {
	wait := h.conflicts.next()
	if h.failed > 0 && (wait == 0 || time.Until(h.retry) < wait) {
		wait = max(time.Until(h.retry), time.Millisecond)
	}
	return wait
}

// healAll looks at everything.
func (d *Daemon) healAll(ctx context.Context) time.Duration {
	differing, err := d.engine.Heal(ctx)
	if err == nil {
		d.report(differing, kernel.PendingEvents{})
	} else if err = d.settle(d.desired); err != nil { // which leaves out who is gone
		if assumed := d.engine.Assume(); assumed == nil {
			err = d.healPart(ctx, d.engine.Account(), kernel.PendingEvents{})
		}
	}
	if err == nil {
		d.healer.failed = 0
		d.forgetUnavailable()
		return d.healer.next()
	}
	if d.healer.failed == 0 {
		d.note(Event{Kind: Unhealed, Object: "host", Detail: err.Error()})
	}
	d.healer.failed = min(max(2*d.healer.failed, retryFirst), retryLast)
	d.healer.retry = time.Now().Add(d.healer.failed)
	return d.healer.next()
}

// namespaces returns what the host calls the namespaces at paths.
func (d *Daemon) namespaces() func(path string) int {
	ids := map[string]int{"": kernel.NoSandbox}
	for _, b := range d.watched {
		ids[b.path] = b.id
	}
	return func(path string) int {
		if id, known := ids[path]; known {
			return id
		}
		return math.MinInt // that of no message
	}
}

// deadIn returns the sandboxes of the objects that are gone: then what is
// missing has gone with them.
func (d *Daemon) deadIn(part plan.Plan) map[string]bool {
	paths := map[string]bool{}
	external := false
	for _, o := range part {
		if link, ok := o.(plan.Link); ok && link.Inside {
			external = true
		}
		for _, end := range append(plan.Ends(o), plan.Base(o)) {
			if i := strings.LastIndexByte(end, ' '); i > 0 {
				paths[end[:i]] = true
			}
		}
	}
	if len(paths) == 0 && !external {
		return nil
	}
	return d.deadAmong(d.desired, func(b *watchedSandbox) bool { return paths[b.path] })
}
