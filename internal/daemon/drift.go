package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/sockets"
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

// healer repairs what differs from the applied state.
type healer struct {
	*state
	networks  *networks
	sandboxes *sandboxes
	services  *services
	applier   *applier
	externals *externals
	watcher   *watch.Watcher
	conflicts heal.Conflicts
	// retry is when everything is repaired again after a failure.
	retry heal.Retry
}

// follow repairs the host until ctx ends.
func (h *healer) follow(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.applied:
			if h.watchSettings() {
				check.Reset(checkEvery)
			} else {
				check.Stop() // there is nothing to check
			}
			continue
		case <-check.C:
			if !h.check() {
				continue
			}
		case <-h.watcher.Noted():
			select {
			case <-time.After(together):
			case <-ctx.Done():
				return
			}
		case <-later:
		}
		later = nil
		if wait := h.heal(ctx); wait > 0 {
			later = time.After(wait)
		}
	}
}

// watchSettings updates the host's sysctls that are checked, and reports whether
// anything needs checks.
func (h *healer) watchSettings() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	account := h.engine.Account()
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
	h.warn("watch settings", h.watcher.Settings(settings))
	return len(settings) > 0 || kernel.Polled(account)
}

// check reads the objects for which the kernel sends no messages, and reports whether
// one of them differs. It does nothing while a state is being applied.
func (h *healer) check() bool {
	if !h.mu.TryLock() {
		return false
	}
	defer h.mu.Unlock()
	return h.watcher.Check()
}

// heal repairs what the pending events are about. again is when to call it again; 0
// means after the next event.
func (h *healer) heal(ctx context.Context) (again time.Duration) {
	_ = h.once(func() error { again = h.healPending(ctx); return nil })
	return again
}

// healPending implements heal. It repeats in the background what needs ports that the proxy has not opened yet.
func (h *healer) healPending(ctx context.Context) (again time.Duration) {
	if ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	defer func() { h.services.reportEnded(h.services.pools) }()
	seen := h.watcher.Take()
	if seen.AddressesChanged() || seen.PoliciesChanged() {
		h.warn("follow the host's addresses and IPsec policies", h.cfg.Inspector.EBPF().RenewHost())
	}
	if seen.HostChanged() || seen.FirewallChanged() {
		h.recheckNetworks()
	}
	account := h.engine.Account()
	if seen.All() || h.retry.Due() || account == nil && !h.retry.Waits() || seen.LeftOver(account) {
		return h.healAll(ctx)
	}
	part := h.conflicts.Due(account, seen.Concerned(account, h.sandboxes.namespaces()))
	if dead := h.sandboxes.deadIn(part); len(dead) > 0 {
		h.later("remove what belonged to a sandbox", h.applier.cleanUp(dead),
			func() error { return h.applier.settle(h.desired) })
		account = h.engine.Account()
		part = h.conflicts.Due(account, seen.Concerned(account, h.sandboxes.namespaces()))
	}
	adopted, err := h.externals.adoptLost(part)
	h.later("adopt", err, func() error { _, err := h.externals.adoptLost(part); return err })
	if adopted {
		account = h.engine.Account()
		part = h.conflicts.Due(account, seen.Concerned(account, h.sandboxes.namespaces()))
	}
	if len(part) == 0 {
		return h.next()
	}
	if err := h.healPart(ctx, part, seen); err != nil {
		h.cfg.Log.Warn("repair what differs", "error", err)
		return h.healAll(ctx)
	}
	return h.next()
}

// healPart repairs the objects. It skips an object that cannot be created, e.g.
// because another program's object is in its place, and tries that one again later.
func (h *healer) healPart(ctx context.Context, part plan.Plan, seen watch.PendingEvents) error {
	for {
		differing, err := h.engine.HealPart(ctx, part)
		var step *plan.StepError
		if !errors.As(err, &step) {
			h.report(differing, seen)
			return err
		}
		if e, first := h.conflicts.Blocked(step); first {
			h.note(e)
		}
		if part = h.conflicts.Free(part); len(part) == 0 {
			return nil
		}
	}
}

// next returns how long to wait before the next attempt, or 0 if none is due.
func (h *healer) next() time.Duration { return h.retry.Next(h.conflicts.Next()) }

// healAll reads and repairs all objects.
func (h *healer) healAll(ctx context.Context) time.Duration {
	differing, err := h.repairAll(ctx)
	if err == nil {
		h.report(differing, watch.PendingEvents{})
	} else if !sockets.AreUnopened(err) {
		err = h.applier.settle(h.desired) // omits sandboxes that have ended
	}
	if sockets.AreUnopened(err) {
		h.retry.Failed() // without an event: the proxy has just been started again
		return h.next()
	}
	if err != nil {
		if assumed := h.engine.Assume(); assumed == nil {
			err = h.healPart(ctx, h.engine.Account(), watch.PendingEvents{})
		}
	}
	if err == nil {
		h.retry.Succeeded()
		h.networks.forgetKeptAddresses()
		return h.next()
	}
	if h.retry.Failed() {
		h.note(api.Event{Kind: api.Unhealed, Object: "host", Detail: err.Error()})
	}
	return h.next()
}

// report reports a repair.
func (h *healer) report(differing []plan.Op, seen watch.PendingEvents) {
	r := heal.ReportOf(differing, seen.Author(), seen.Detached())
	for _, e := range append(r.Events, h.conflicts.Repaired(r.Conflicting, seen.Author())...) {
		h.note(e)
	}
	if r.Elements > 0 {
		h.cfg.Log.Warn(string(api.Healed), "object", "nft elements", "count", r.Elements)
	}
	for kind, n := range r.Kinds {
		h.cfg.Meter.Healed(kind, n)
	}
	if len(r.Kinds) > 0 {
		h.changed()
	}
}

// recheckNetworks applies unavailable networks that can exist on the host again. It
// also applies the other networks again if the host's links have changed.
func (h *healer) recheckNetworks() {
	back, err := h.networks.available()
	if err != nil {
		h.warn("read the host's links", err)
		return
	}
	changed, err := h.engine.FactsChanged(h.services.stateOf(h.desired))
	h.warn("read the host's links", err)
	if len(back) == 0 && !changed {
		return
	}
	again := func() error { return h.applyAgain(back) }
	h.later("follow the host's links", again(), again)
}

// applyAgain applies the desired state again, with the attachments to networks that were unavailable. If that fails,
// these are tried again after the next change of a link.
func (h *healer) applyAgain(back []string) error {
	for _, a := range h.desired.Attachments {
		if slices.Contains(back, a.Network) {
			delete(h.problems, a.Name)
		}
	}
	for _, name := range back {
		delete(h.networks.unavailable, name)
	}
	h.desired.Attachments = h.leases.Adopt(h.desired.Attachments)
	err := h.applier.settle(h.desired)
	h.startLeasing()
	for _, name := range back {
		if err != nil {
			h.networks.unavailable[name] = true
		} else if !h.networks.unavailable[name] {
			h.note(api.Event{Kind: api.NetworkAvailable, Object: "network " + name})
		}
	}
	h.networks.forgetKeptAddresses()
	return err
}
