package daemon

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/engine"
	"fairlead/internal/plan"
)

// Somebody who keeps changing what we keep putting right would make us busy for
// ever, and neither would win. So what was put right too often is left alone
// for a while, and for longer each time.
const (
	// waits is how often a thing is put right at once, if never longer than
	// calm passes between.
	waits = 20
	calm  = 10 * time.Second
	// The waits after that.
	backoffFirst, backoffLast = time.Second, time.Minute
)

// conflict is how often one object was put right.
type conflict struct {
	times int
	since time.Time
	last  time.Time
	// until is the end of the wait, and wait how long it is.
	until time.Time
	wait  time.Duration
	// differences says that it has been seen to stray while we waited.
	differences bool
	// blockedBy says that it could not be made the last time, which was told.
	blockedBy bool
}

// conflicts are the contests by what they are about.
type conflicts map[string]*conflict

// conflictOf names what a contest about the object is about: its key. The nft
// table and its elements are one thing, as they are read and changed at once.
func conflictOf(o plan.Object) string {
	switch o.(type) {
	case plan.Table, plan.NFTMapping, plan.Member:
		return plan.Table{}.Key()
	case plan.ServiceTable, plan.NFTService:
		return plan.ServiceTable{}.Key()
	}
	return o.Key()
}

// due returns the objects to look at now: of those that are concerned the ones
// that are not waited for, and those whose wait is over.
func (c conflicts) due(account, concerned plan.Plan) plan.Plan {
	if len(c) == 0 {
		return concerned
	}
	part := c.free(concerned)
	now := time.Now()
	over := map[string]bool{}
	for key, at := range c {
		if at.differences && !now.Before(at.until) {
			at.differences, over[key] = false, true
		}
	}
	if len(over) == 0 {
		return part
	}
	seen, ends := map[plan.Object]bool{}, map[string]bool{}
	for _, o := range part {
		seen[o] = true
	}
	for _, o := range account {
		if !over[conflictOf(o)] && !ends[plan.Base(o)] {
			continue
		}
		for _, end := range plan.Ends(o) {
			ends[end] = true // what stands on it was left out too
		}
		if !seen[o] {
			part = append(part, o)
		}
	}
	return part
}

// free returns the objects without those that are waited for, and without what
// stands on links among those.
func (c conflicts) free(concerned plan.Plan) plan.Plan {
	if len(c) == 0 {
		return concerned
	}
	now := time.Now()
	var part plan.Plan
	waits := map[string]bool{}
	for _, o := range concerned {
		if at := c[conflictOf(o)]; at != nil && now.Before(at.until) {
			at.differences = true
			for _, end := range plan.Ends(o) {
				waits[end] = true
			}
			continue
		}
		part = append(part, o)
	}
	return slices.DeleteFunc(part, func(o plan.Object) bool { return waits[plan.Base(o)] })
}

// next returns how long it is until a wait ends, 0 when none does.
func (c conflicts) next() time.Duration {
	var first time.Duration
	for _, at := range c {
		if left := max(time.Until(at.until), time.Millisecond); at.differences && (first == 0 || left < first) {
			first = left
		}
	}
	return first
}

// count notes that the object was put right, and returns its contest if that
// was too often.
func (c conflicts) count(key string) *conflict {
	now := time.Now()
	maps.DeleteFunc(c, func(_ string, at *conflict) bool { return now.Sub(at.last) > calm+at.wait && !at.differences })
	at := c[key]
	if at == nil {
		at = &conflict{since: now}
		c[key] = at
	}
	at.times++
	at.last, at.blockedBy = now, false
	if at.times < waits {
		return nil
	}
	at.longer(now)
	return at
}

// longer waits longer than the last time.
func (at *conflict) longer(now time.Time) {
	at.wait = min(max(2*at.wait, backoffFirst), backoffLast)
	at.until = now.Add(at.wait)
}

// blockedBy waits before an object is tried again that could not be made.
func (d *Daemon) blockedBy(step *engine.StepError) {
	now, key := time.Now(), conflictOf(step.Object)
	at := d.healer.conflicts[key]
	if at == nil || now.Sub(at.last) > calm+at.wait {
		at = &conflict{since: now}
		d.healer.conflicts[key] = at
	}
	if !at.blockedBy {
		d.note(Event{Kind: Unhealed, Object: key, Detail: step.Error()})
	}
	at.last, at.differences, at.blockedBy = now, true, true
	at.longer(now)
}

// conflict counts that something was put right, and says so if somebody keeps
// changing it.
func (d *Daemon) conflict(key, by string) {
	at := d.healer.conflicts.count(key)
	if at == nil {
		return
	}
	who := by
	if who == "" {
		who = "somebody"
	}
	d.note(Event{Kind: Conflicting, Object: key, By: by, Detail: fmt.Sprintf(
		"%s keeps changing %s: put right %d times in %s; it is left alone for %s", who, key, at.times,
		at.last.Sub(at.since).Round(time.Millisecond), at.wait)})
}
