package daemon

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// Drain is how a real server is led out of service: it gets no new flows and
// keeps those that it has, until they end or a deadline passes.
type Drain struct {
	// Cause says why.
	Cause string    `json:"cause"`
	Since time.Time `json:"since"`
	// Deadline ends the drain whatever flows there are; zero is none.
	Deadline time.Time `json:"deadline,omitzero"`
	// Ended is when it has; until then it is under way.
	Ended time.Time `json:"ended,omitzero"`
	// Asked says that a command asked for it, so that only a command takes it
	// back.
	Asked bool `json:"asked,omitempty"`
	// Endpoint is the attachment that the real server is.
	Endpoint string `json:"endpoint,omitempty"`
	// Leaving says that the server goes with it, and Real what it was.
	Leaving bool             `json:"leaving,omitempty"`
	Real    model.RealServer `json:"real,omitzero"`
}

const (
	// countEvery is how often the flows of those that drain are counted.
	countEvery = time.Second
	// uncounted is how long a drain without a deadline takes where the plane does
	// not count flows.
	uncounted = time.Minute
	// saveRest is how many times as long as it has taken to note the health of
	// all real servers it is left alone then: changes are noted at once where
	// these are few.
	saveRest = 20
	// reapplyAfter is how long is waited after a failure.
	reapplyAfter = time.Second
)

// deadline returns when a drain ends that begins at a time: as it was asked
// for, or as the service has it.
func deadline(since time.Time, asked, usual time.Duration) time.Time {
	switch {
	case asked > 0:
		return since.Add(asked)
	case usual > 0:
		return since.Add(usual)
	}
	return time.Time{}
}

// balance follows what happens to real servers until ctx ends.
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
		// A process after us would take one that has come up for new, and not use it
		// until it is checked.
		if now := time.Now(); now.Before(rested) {
			save.Reset(rested.Sub(now))
		} else {
			d.saveHealth()
			rested = time.Now().Add(saveRest * time.Since(now))
		}
	}
}

// idleServices reports whether no drain is under way, nor a stop of a container.
func (d *Daemon) idleServices() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, drain := range d.services.drains {
		if drain.Ended.IsZero() {
			return false
		}
	}
	for _, c := range d.services.containers {
		if c.ending() {
			return false
		}
	}
	return true
}

// endDrains ends the drains whose flows have ended, or whose deadline is over.
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
		s.markDirty(key.service)
		d.keepDrains(key)
	}
}

// Notes keep JSON by keys; *store.Notes does.
type Notes interface {
	All() map[string]json.RawMessage
	Put(map[string]any) error
}

// The keys of notes.
const (
	drainNote     = "drain "
	healthNote    = "health of real servers"
	containerNote = "container "
)

func (k realKey) note() string { return drainNote + k.service + " " + k.at.String() }

// keepDrains notes the drains of those keys, for the next process. One that was
// asked for of a server elsewhere outlives a reboot.
func (d *Daemon) keepDrains(keys ...realKey) {
	if d.cfg.Passing == nil || len(keys) == 0 {
		return
	}
	passing, lasting := map[string]any{}, map[string]any{}
	for _, key := range keys {
		name := key.note()
		passing[name], lasting[name] = nil, nil
		switch drain := d.services.drains[key]; {
		case drain == nil:
		case drain.Asked && drain.Endpoint == "":
			lasting[name] = drain
		default:
			passing[name] = drain
		}
	}
	d.warn("note the drains", d.cfg.Passing.Put(passing))
	d.warn("note the drains", d.cfg.Lasting.Put(lasting))
}

// saveHealth notes what the checks know, if it is otherwise than was noted.
func (d *Daemon) saveHealth() {
	d.mu.Lock()
	unsaved := d.services.unsaved
	d.services.unsaved = false
	d.mu.Unlock()
	if unsaved && d.cfg.Passing != nil {
		d.warn("note the health of real servers", d.cfg.Passing.Put(map[string]any{healthNote: d.health.Export()}))
	}
}

// recall reads what the process before has noted. Of containers, what is not
// attached now is told again when it runs.
func (d *Daemon) recall(w model.Desired) {
	if d.cfg.Passing == nil {
		return
	}
	for _, notes := range []Notes{d.cfg.Lasting, d.cfg.Passing} {
		for key, text := range notes.All() {
			d.warn("read note "+key, d.recallNote(key, text))
		}
	}
	gone := map[string]any{}
	maps.DeleteFunc(d.services.containers, func(ref string, _ Container) bool {
		attached := slices.ContainsFunc(w.Attachments, func(a model.Attachment) bool { return a.Ref == ref })
		if !attached {
			gone[containerNote+ref] = nil
		}
		return !attached
	})
	d.warn("forget containers", d.cfg.Passing.Put(gone))
}

func (d *Daemon) recallNote(key string, text json.RawMessage) error {
	ref, isContainer := strings.CutPrefix(key, containerNote)
	switch rest, isDrain := strings.CutPrefix(key, drainNote); {
	case key == healthNote:
		return json.Unmarshal(text, &d.services.noted)
	case isContainer:
		var c Container
		err := json.Unmarshal(text, &c)
		d.services.containers[ref] = c
		return err
	case isDrain:
		space := max(0, strings.LastIndexByte(rest, ' '))
		service, at := rest[:space], strings.TrimSpace(rest[space:])
		var drain Drain
		real, err := netip.ParseAddrPort(at)
		if err == nil {
			err = json.Unmarshal(text, &drain)
		}
		if err != nil {
			return err
		}
		d.services.drains[realKey{service, real}] = &drain
		d.recallLeaver(service, real, drain)
	}
	return nil
}

// recallLeaver makes as if a server that leaves had been a member before.
func (d *Daemon) recallLeaver(service string, at netip.AddrPort, drain Drain) {
	if !drain.Leaving {
		return
	}
	p := d.services.pools[service]
	if p == nil {
		p = &pool{restored: true}
		d.services.pools[service] = p
	}
	p.members = append(p.members, member{RealServer: drain.Real, at: at, spec: drain.Real, standing: RealDraining, cause: drain.Cause, since: drain.Since, leaving: true})
	p.full.Reals = append(p.full.Reals, drain.Real)
	p.index()
}
