package repair

import (
	"context"
	"slices"
	"sync"
	"time"

	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// patience is how long to read rules that change all the time while ebpf is chosen: the way back
// resets connections.
const patience = 5 * time.Second

// portsWait is how long to wait for ports of the proxy before the rules are read again.
const portsWait = time.Second

// FollowRules ends the connections in the flowtable whenever another program has changed
// rules, until ctx ends. It needs no mutex of the state, and waits for no step: the choices for
// networks with outbound auto have a goroutine of their own. It begins with ending them, because
// rules may have changed while no daemon ran; no event reports that.
func (h *Healer) FollowRules(ctx context.Context) {
	if h.cfg.EndFlows == nil {
		return
	}
	var choosing sync.WaitGroup
	defer choosing.Wait()
	h.endFlows(true)
	h.changed.Store(true)
	choosing.Go(func() { h.followChoices(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.cfg.Watcher.RulesChanged():
			h.endFlows(false)
			h.changed.Store(true)
			h.chooses.Send()
		}
	}
}

// followChoices chooses for networks with outbound auto, at first and whenever rules, networks,
// sandboxes or links have changed, until ctx ends.
func (h *Healer) followChoices(ctx context.Context) {
	p := pace{wanted: true}
	for {
		wait, waits := p.wait(time.Now())
		if waits && wait <= 0 {
			changed := h.changed.Swap(false)
			took, next, unopened := h.chooseOutbound(ctx, changed)
			p.read(time.Now(), took, next)
			if changed && unopened {
				h.changed.Store(true)
			}
			continue
		}
		var due <-chan time.Time
		if waits {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-h.chooses:
			p.wanted = true
		}
	}
}

// endFlows ends the connections in the flowtable. first means that no event reports it.
func (h *Healer) endFlows(first bool) {
	had, err := h.cfg.EndFlows()
	if err != nil { // the table is deleted
		h.state.Warn("end the connections in the flowtable", err)
		h.cfg.Watcher.NoteTable(plan.FlowtableName)
	}
	if had && !first {
		h.ended.Add(1)
	}
}

// chooseOutbound chooses for networks with outbound auto. changed means that the rules have
// changed. It returns how long it took to read them, when to choose again although nothing has
// changed (zero means never), and whether the choice waits for ports of the proxy. Then the rules
// are read again before the step is repeated: they may have changed.
func (h *Healer) chooseOutbound(ctx context.Context, changed bool) (took time.Duration, again time.Time,
	unopened bool) {
	if h.cfg.Deciders == nil {
		return 0, again, false
	}
	h.state.Lock()
	w := h.state.Desired()
	h.state.Unlock()
	f, _, took := h.findOutbound(ctx, w, h.bypassing())
	f.Changed = changed
	if len(f.Names) == 0 || ctx.Err() != nil { // a daemon that ends leaves the choice as it is
		return 0, again, false
	}
	err := h.steps.Once(func() (err error) {
		err = h.cfg.Networks.Choose(f, func() error { return h.cfg.Applier.Settle(h.state.Desired()) })
		again = rules.Earlier(f.Until, h.cfg.Networks.NextChoice())
		return err
	})
	if sockets.AreUnopened(err) {
		return took, time.Now().Add(portsWait), true
	}
	if err != nil && h.state.Life.Err() == nil {
		h.state.Log.Error("follow the host's rules", "error", err)
	}
	return took, again, false
}

// bypassing returns the patience if ebpf is chosen for a network, or else 0.
func (h *Healer) bypassing() time.Duration {
	h.state.Lock()
	defer h.state.Unlock()
	for _, c := range h.cfg.Networks.Choices() {
		if c.Outbound() == model.OutboundEBPF {
			return patience
		}
	}
	return 0
}

// findOutbound finds out what the host's rules say about the networks of a state and the paths
// of their packets. It reads the rules without the mutex of the state, for as long as limit while
// they change, or until ctx ends.
func (h *Healer) findOutbound(ctx context.Context, w model.Desired, limit time.Duration) (f networks.Finding,
	paths []rules.Path, took time.Duration) {
	h.state.Lock()
	f.Names, paths = h.cfg.Networks.AutoPaths(w)
	h.state.Unlock()
	if len(paths) == 0 {
		return f, nil, 0
	}
	h.cfg.Watcher.CheckRules()
	began := time.Now()
	patient, end := context.WithTimeout(ctx, limit)
	defer end()
	why, err := h.cfg.Deciders(patient, paths)
	if err != nil {
		unread := rules.Reason{Text: "the rules of the host could not be read: " + err.Error()}
		why = slices.Repeat([]rules.Reason{unread}, len(paths))
	}
	for _, r := range why {
		f.Why, f.Until = append(f.Why, r.Text), rules.Earlier(f.Until, r.Until)
	}
	f.At = time.Now()
	return f, paths, f.At.Sub(began)
}

// KeepOutbound chooses for the networks of a state that is not applied yet and for which an
// earlier process has chosen ebpf, so that their connections continue.
func (h *Healer) KeepOutbound(w model.Desired) {
	if h.cfg.Deciders == nil {
		return
	}
	found, err := h.cfg.Outbounds()
	h.state.Warn("read which connections eBPF translates", err)
	if len(found) == 0 {
		return
	}
	f, paths, _ := h.findOutbound(h.state.Life, w, patience)
	if h.state.Life.Err() != nil { // a daemon that ends leaves the choice as it is
		return
	}
	var kept networks.Finding
	for i, name := range f.Names {
		if slices.ContainsFunc(found, func(o plan.Outbound) bool { return o.Router == paths[i].Router }) {
			kept.Names, kept.Why = append(kept.Names, name), append(kept.Why, f.Why[i])
		}
	}
	h.state.Lock()
	defer h.state.Unlock()
	h.state.Warn("keep what was chosen", h.cfg.Networks.Choose(kept, func() error { return nil }))
}
