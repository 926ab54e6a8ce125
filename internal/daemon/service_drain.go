package daemon

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/daemon/pool"
	"fairlead/internal/model"
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

// balance applies changes of real servers, and ends drains, until ctx ends.
func (d *Daemon) balance(ctx context.Context) {
	count := time.NewTicker(countEvery)
	defer count.Stop()
	save := time.NewTimer(0)
	defer save.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			d.saveHealth()
			return
		case <-d.services.woken:
			if d.idleServices() {
				count.Stop()
			} else {
				count.Reset(countEvery)
			}
		case <-count.C:
			d.endDrains()
			d.endStops()
		case <-save.C:
		}
		if err := d.rebalance(); err != nil {
			d.cfg.Log.Error("balance", "error", err)
			select {
			case <-time.After(reapplyAfter):
				d.services.wake()
			case <-ctx.Done():
			}
		}
		// Without the saved health, a later process would not use a server that is up
		// until it has checked it.
		if now := time.Now(); now.Before(rested) {
			save.Reset(rested.Sub(now))
		} else {
			d.saveHealth()
			rested = time.Now().Add(saveRest * time.Since(now))
		}
	}
}

// idleServices reports whether no drain and no stop of a container is in progress.
func (d *Daemon) idleServices() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, drain := range d.services.drains {
		if drain.Ended.IsZero() {
			return false
		}
	}
	for _, c := range d.services.containers {
		if c.Ending() {
			return false
		}
	}
	return true
}

// endDrains ends the drains whose flows have ended, or whose deadline has passed.
func (d *Daemon) endDrains() {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, now := &d.services, time.Now()
	d.countFlows()
	for key, drain := range s.drains {
		if !drain.Ended.IsZero() {
			continue
		}
		live := d.flowsOf(key)
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
		s.markDirty(key.Service)
		d.saveDrains(key)
	}
}

// Notes saves JSON values under keys. *store.Notes implements it.
type Notes interface {
	All() map[string]json.RawMessage
	Put(map[string]any) error
}

// The keys of notes, or their prefixes.
const (
	healthNote    = "health of real servers"
	containerNote = "container "
)

// saveDrains saves the drains with these keys for later processes. A drain that a
// command requested of a server on another host survives a reboot.
func (d *Daemon) saveDrains(keys ...pool.Key) {
	if d.cfg.Passing == nil || len(keys) == 0 {
		return
	}
	passing, lasting := map[string]any{}, map[string]any{}
	for _, key := range keys {
		name := key.Note()
		passing[name], lasting[name] = nil, nil
		switch drain := d.services.drains[key]; {
		case drain == nil:
		case drain.Asked && drain.Endpoint == "":
			lasting[name] = drain
		default:
			passing[name] = drain
		}
	}
	d.warn("save the drains", d.cfg.Passing.Put(passing))
	d.warn("save the drains", d.cfg.Lasting.Put(lasting))
}

// saveHealth saves the state of the checks if it has changed.
func (d *Daemon) saveHealth() {
	d.mu.Lock()
	unsaved := d.services.unsaved
	d.services.unsaved = false
	d.mu.Unlock()
	if unsaved && d.cfg.Passing != nil {
		d.warn("save the health of real servers", d.cfg.Passing.Put(map[string]any{healthNote: d.health.Export()}))
	}
}

// restoreNotes reads the notes of an earlier process. It deletes notes of containers
// without an attachment: their engine reports them again if they run.
func (d *Daemon) restoreNotes(w model.Desired) {
	if d.cfg.Passing == nil {
		return
	}
	for _, notes := range []Notes{d.cfg.Lasting, d.cfg.Passing} {
		for key, text := range notes.All() {
			d.warn("read note "+key, d.restoreNote(key, text))
		}
	}
	gone := map[string]any{}
	maps.DeleteFunc(d.services.containers, func(ref string, _ pool.Container) bool {
		attached := slices.ContainsFunc(w.Attachments, func(a model.Attachment) bool { return a.Ref == ref })
		if !attached {
			gone[containerNote+ref] = nil
		}
		return !attached
	})
	d.warn("forget containers", d.cfg.Passing.Put(gone))
}

func (d *Daemon) restoreNote(key string, text json.RawMessage) error {
	ref, isContainer := strings.CutPrefix(key, containerNote)
	switch rest, isDrain := strings.CutPrefix(key, pool.DrainNote); {
	case key == healthNote:
		return json.Unmarshal(text, &d.services.savedHealth)
	case isContainer:
		var c pool.Container
		err := json.Unmarshal(text, &c)
		d.services.containers[ref] = c
		return err
	case isDrain:
		space := max(0, strings.LastIndexByte(rest, ' '))
		service, at := rest[:space], strings.TrimSpace(rest[space:])
		var drain pool.Drain
		real, err := netip.ParseAddrPort(at)
		if err == nil {
			err = json.Unmarshal(text, &drain)
		}
		if err != nil {
			return err
		}
		d.services.drains[pool.Key{Service: service, At: real}] = &drain
		d.restoreLeaving(service, real, drain)
	}
	return nil
}

// restoreLeaving makes a server whose removal is in progress a member of the earlier
// pool.
func (d *Daemon) restoreLeaving(service string, at netip.AddrPort, drain pool.Drain) {
	if !drain.Leaving {
		return
	}
	d.services.pools[service] = d.services.pools[service].Restore(at, drain)
}
