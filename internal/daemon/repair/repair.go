// Package repair repairs the host when another program has changed it, and opens the ports of a proxy that has ended in
// another one. Package heal decides what to repair and when to try again.
//
// Theory of operation. If another program changes one of Fairlead's objects, the daemon repairs
// it as soon as the kernel reports the change. It reads only the changed objects:
// the watcher finds which objects of the engine's account a message is about, and
// the engine reads those from the kernel. If the kernel has dropped messages, all
// objects are read.
//
//	messages ──► pending events ──(50 ms)──► objects of the account that differ
//	checks   ──►                                  │
//	                            engine.HealPart ◄─┘──► events, log, meter
package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/api"
	"fairlead/internal/daemon/applier"
	"fairlead/internal/daemon/endpoints"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

const (
	// together is how long to wait for further messages about the same change.
	together = 50 * time.Millisecond
	// checkEvery is the interval of the checks for changes that the kernel does not
	// report.
	checkEvery = 750 * time.Millisecond
)

// Config contains what a Healer needs.
type Config struct {
	State     *state.State
	Steps     *step.Runner
	Networks  *networks.Networks
	Sandboxes *watched.Sandboxes
	Services  *services.Services
	Applier   *applier.Applier
	Endpoints *endpoints.Endpoints
	Engine    *engine.Engine
	Leases    *leases.Clients
	// Watcher reports changes of the host.
	Watcher *watch.Watcher
	// RenewHost makes the eBPF data path follow the host's addresses and IPsec policies.
	RenewHost func() error
	// Exhausted returns how many outbound flows the kernel has forwarded since the last
	// call, because no port was free. It can be nil.
	Exhausted func() uint64
	// EndFlows ends the connections in the flowtable, so that the next packet of each passes
	// the host's rules. It reports whether there is a flowtable. It can be nil.
	EndFlows func() (bool, error)
	// Deciders returns for each path the reason why outbound connections must not bypass the
	// host's rules. It may wait until the context ends while the rules change. It can be nil.
	Deciders func(context.Context, []rules.Path) ([]rules.Reason, error)
	// Outbounds returns the links whose outbound connections the host's programs translate.
	Outbounds func() ([]plan.Outbound, error)
	// Healed records that n objects of one kind differed and were repaired.
	Healed func(kind string, n int)
}

// Healer repairs what differs from the applied state.
type Healer struct {
	cfg   Config
	state *state.State
	steps *step.Runner
	// The mutex of the state protects the fields below.
	conflicts heal.Conflicts
	// ended counts the changes of rules that have ended the connections in the flowtable and
	// that no event has reported yet. It needs no mutex.
	ended atomic.Int64
	// chooses wakes the goroutine that chooses for networks with outbound auto, and changed says that
	// rules have changed since it read them. They need no mutex.
	chooses alarm.Signal
	changed atomic.Bool
	// retry is when everything is repaired again after a failure.
	retry heal.Retry
}

// New returns a Healer that has repaired nothing yet.
func New(cfg Config) *Healer {
	return &Healer{cfg: cfg, state: cfg.State, steps: cfg.Steps, conflicts: heal.Conflicts{},
		chooses: alarm.NewSignal()}
}

// Follow repairs the host until ctx ends. It locks the mutex of the state.
func (h *Healer) Follow(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.state.Reapplied:
			if h.watchSettings() {
				check.Reset(checkEvery)
			} else {
				check.Stop() // there is nothing to check
			}
			h.chooses.Send() // there may be other networks or sandboxes
			continue
		case <-check.C:
			if !h.check() {
				continue
			}
		case <-h.cfg.Watcher.Noted():
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

// reportEndedFlows notes that changes of rules have ended the connections in the flowtable.
func (h *Healer) reportEndedFlows() {
	if n := h.ended.Swap(0); n > 0 {
		detail := fmt.Sprintf("rules of the host have changed (%d): the next packet of each connection passes them", n)
		h.state.Note(api.Event{Kind: api.FlowtableCleared, Object: "flowtable", Detail: detail})
	}
}

// watchSettings updates the host's sysctls that are checked, and whether rules are polled of
// which the kernel sends no messages. It reports whether anything needs checks.
func (h *Healer) watchSettings() bool {
	h.state.Lock()
	defer h.state.Unlock()
	account := h.cfg.Engine.Account()
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
	h.state.Warn("watch settings", h.cfg.Watcher.Settings(settings))
	bypasses := slices.ContainsFunc(account, func(o plan.Object) bool { _, is := o.(plan.Flowtable); return is }) ||
		slices.ContainsFunc(h.state.Desired().Networks,
			func(n model.Network) bool { return n.Outbound == model.OutboundAuto })
	h.cfg.Watcher.PollRules(bypasses)
	return len(settings) > 0 || kernel.Polled(account) || bypasses
}

// check reads the objects for which the kernel sends no messages, and reports whether
// one of them differs. It does nothing while a state is being applied.
func (h *Healer) check() bool {
	if !h.state.TryLock() {
		return false
	}
	defer h.state.Unlock()
	h.reportExhausted()
	h.reportEndedFlows()
	return h.cfg.Watcher.Check()
}

// reportExhausted notes that outbound flows have no free ports.
func (h *Healer) reportExhausted() {
	if h.cfg.Exhausted == nil {
		return
	}
	if n := h.cfg.Exhausted(); n > 0 {
		h.state.Note(api.Event{Kind: api.OutboundExhausted, Object: "outbound ports", Detail: fmt.Sprintf("%d new "+
			"connections to hosts outside found no free port: the kernel forwards them as with outbound nft", n)})
	}
}

// heal repairs what the pending events are about. again is when to call it again; 0
// means after the next event.
func (h *Healer) heal(ctx context.Context) (again time.Duration) {
	_ = h.steps.Once(func() error { again = h.healPending(ctx); return nil })
	return again
}

// healPending implements heal. It repeats in the background what needs ports that the proxy has not opened yet.
func (h *Healer) healPending(ctx context.Context) (again time.Duration) {
	if ctx.Err() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, step.Limit)
	defer cancel()
	defer h.cfg.Services.ReportEnded()
	seen := h.cfg.Watcher.Take()
	if seen.AddressesChanged() || seen.PoliciesChanged() {
		h.state.Warn("follow the host's addresses and IPsec policies", h.cfg.RenewHost())
	}
	if seen.LinksChanged() {
		h.chooses.Send() // rules may name the link
	}
	if seen.HostChanged() || seen.FirewallChanged() {
		h.recheckNetworks()
	}
	account := h.cfg.Engine.Account()
	if seen.All() || h.retry.Due() || account == nil && !h.retry.Waits() || seen.LeftOver(account) {
		return h.healAll(ctx)
	}
	part := h.conflicts.Due(account, seen.Concerned(account, h.cfg.Sandboxes.Namespaces()))
	if dead := h.cfg.Sandboxes.DeadIn(part); len(dead) > 0 {
		h.steps.Later("remove what belonged to a sandbox", h.cfg.Applier.CleanUp(dead),
			func() error { return h.cfg.Applier.Settle(h.state.Desired()) })
		account = h.cfg.Engine.Account()
		part = h.conflicts.Due(account, seen.Concerned(account, h.cfg.Sandboxes.Namespaces()))
	}
	adopted, err := endpoints.AdoptLost(h.cfg.Endpoints, part)
	h.steps.Later("adopt", err, func() error { _, err := endpoints.AdoptLost(h.cfg.Endpoints, part); return err })
	if adopted {
		account = h.cfg.Engine.Account()
		part = h.conflicts.Due(account, seen.Concerned(account, h.cfg.Sandboxes.Namespaces()))
	}
	if len(part) == 0 {
		return h.next()
	}
	if err := h.healPart(ctx, part, seen); err != nil {
		h.state.Log.Warn("repair what differs", "error", err)
		return h.healAll(ctx)
	}
	return h.next()
}

// healPart repairs the objects. It skips an object that cannot be created, e.g.
// because another program's object is in its place, and tries that one again later.
func (h *Healer) healPart(ctx context.Context, part plan.Plan, seen watch.PendingEvents) error {
	for {
		differing, err := h.cfg.Engine.HealPart(ctx, part)
		var step *plan.StepError
		if !errors.As(err, &step) {
			h.report(differing, seen)
			return err
		}
		if e, first := h.conflicts.Blocked(step); first {
			h.state.Note(e)
		}
		if part = h.conflicts.Free(part); len(part) == 0 {
			return nil
		}
	}
}

// next returns how long to wait before the next attempt, or 0 if none is due.
func (h *Healer) next() time.Duration { return h.retry.Next(h.conflicts.Next()) }

// healAll reads and repairs all objects.
func (h *Healer) healAll(ctx context.Context) time.Duration {
	differing, err := h.repairAll(ctx)
	if err == nil {
		h.report(differing, watch.PendingEvents{})
	} else if !sockets.AreUnopened(err) {
		err = h.cfg.Applier.Settle(h.state.Desired()) // omits sandboxes that have ended
	}
	if sockets.AreUnopened(err) {
		h.retry.Failed() // without an event: the proxy has just been started again
		return h.next()
	}
	if err != nil {
		if assumed := h.cfg.Engine.Assume(); assumed == nil {
			err = h.healPart(ctx, h.cfg.Engine.Account(), watch.PendingEvents{})
		}
	}
	if err == nil {
		h.retry.Succeeded()
		h.cfg.Networks.ForgetKeptAddresses()
		return h.next()
	}
	if h.retry.Failed() {
		h.state.Note(api.Event{Kind: api.Unhealed, Object: "host", Detail: err.Error()})
	}
	return h.next()
}

// report reports a repair.
func (h *Healer) report(differing []plan.Op, seen watch.PendingEvents) {
	r := heal.ReportOf(differing, seen.Author(), seen.Detached())
	for _, e := range append(r.Events, h.conflicts.Repaired(r.Conflicting, seen.Author())...) {
		h.state.Note(e)
	}
	if r.Elements > 0 {
		h.state.Log.Warn(string(api.Healed), "object", "nft elements", "count", r.Elements)
	}
	for kind, n := range r.Kinds {
		h.cfg.Healed(kind, n)
	}
	if len(r.Kinds) > 0 {
		h.state.Changed()
	}
}

// recheckNetworks applies unavailable networks that can exist on the host again. It
// also applies the other networks again if the host's links have changed.
func (h *Healer) recheckNetworks() {
	back, err := h.cfg.Networks.Available()
	if err != nil {
		h.state.Warn("read the host's links", err)
		return
	}
	changed, err := h.cfg.Engine.FactsChanged(h.cfg.Services.StateOf(h.state.Desired()))
	h.state.Warn("read the host's links", err)
	if len(back) == 0 && !changed {
		return
	}
	again := func() error { return h.applyAgain(back) }
	h.steps.Later("follow the host's links", again(), again)
}

// applyAgain applies the desired state again, with the attachments to networks that were unavailable. If that fails,
// these are tried again after the next change of a link.
func (h *Healer) applyAgain(back []string) error {
	h.cfg.Networks.Retry(back)
	w := h.state.Desired()
	w.Attachments = h.cfg.Leases.Adopt(w.Attachments)
	h.state.Assume(w)
	err := h.cfg.Applier.Settle(w)
	h.steps.StartLeasing()
	h.cfg.Networks.Retried(back, err)
	return err
}

// repairAll reads and repairs all objects (engine.Heal). Only a step may call it: a repair can reset clients, and a
// request that ran meanwhile would take the resets for its own and wait for them.
func (h *Healer) repairAll(ctx context.Context) ([]plan.Op, error) {
	h.steps.Assert("the host is repaired outside of a step: a request would wait for the resets of the repair")
	return h.cfg.Engine.Heal(ctx)
}
