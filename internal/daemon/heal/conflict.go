// Package heal decides which differing objects the daemon repairs, when it tries again,
// and what it reports. It changes nothing itself.
package heal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/plan"
)

// If another program keeps changing an object that the daemon repairs, the two would
// do so for ever. So after several repairs the daemon waits before the next one,
// and longer each time.
const (
	// freeRepairs is the number of repairs without a wait, and calm the time
	// without a repair after which the count starts again.
	freeRepairs = 20
	calm        = 10 * time.Second
	// backoffFirst and backoffLast are the shortest and the longest wait.
	backoffFirst, backoffLast = time.Second, time.Minute
)

// conflict counts the repairs of one object.
type conflict struct {
	times int
	since time.Time
	last  time.Time
	// until is the end of the current wait, wait its length.
	until time.Time
	wait  time.Duration
	// differs says that the object was found to differ during the wait.
	differs bool
	// reported says that the last attempt to create the object failed, and that this
	// was reported.
	reported bool
}

// Conflicts are the conflicts by the keys of their objects.
type Conflicts map[string]*conflict

// conflictOf returns the key of the object's conflict. The nft table and its elements
// have one key, because they are read and changed together.
func conflictOf(o plan.Object) string {
	if g := plan.GroupOf(o); g.IsTable() {
		return string(g)
	}
	return o.Key()
}

// Due returns the objects to repair now: the concerned ones without a wait, and those
// of the account whose wait is over.
func (c Conflicts) Due(account, concerned plan.Plan) plan.Plan {
	if len(c) == 0 {
		return concerned
	}
	part := c.Free(concerned)
	now := time.Now()
	over := map[string]bool{}
	for key, at := range c {
		if at.differs && !now.Before(at.until) {
			at.differs, over[key] = false, true
		}
	}
	if len(over) == 0 {
		return part
	}
	seen, ends := map[string]bool{}, map[string]bool{}
	for _, o := range part {
		seen[o.Key()] = true
	}
	for _, o := range account {
		if !over[conflictOf(o)] && !ends[plan.Base(o)] {
			continue
		}
		for _, end := range plan.Ends(o) {
			ends[end] = true // its dependent objects were skipped too
		}
		if !seen[o.Key()] {
			part = append(part, o)
		}
	}
	return part
}

// Free returns the objects without those that have a wait, and without the objects
// that depend on links among those.
func (c Conflicts) Free(concerned plan.Plan) plan.Plan {
	if len(c) == 0 {
		return concerned
	}
	now := time.Now()
	var part plan.Plan
	waits := map[string]bool{}
	for _, o := range concerned {
		if at := c[conflictOf(o)]; at != nil && now.Before(at.until) {
			at.differs = true
			for _, end := range plan.Ends(o) {
				waits[end] = true
			}
			continue
		}
		part = append(part, o)
	}
	return slices.DeleteFunc(part, func(o plan.Object) bool { return waits[plan.Base(o)] })
}

// Next returns the time until the first wait ends, or 0 if there is none.
func (c Conflicts) Next() time.Duration {
	var first time.Duration
	for _, at := range c {
		if left := max(time.Until(at.until), time.Millisecond); at.differs && (first == 0 || left < first) {
			first = left
		}
	}
	return first
}

// count records a repair of the object. It returns the conflict if there were too
// many.
func (c Conflicts) count(key string, now time.Time) *conflict {
	at := c[key]
	if at == nil {
		at = &conflict{since: now}
		c[key] = at
	}
	at.times++
	at.last, at.reported = now, false
	if at.times < freeRepairs {
		return nil
	}
	at.backOff(now)
	return at
}

// backOff starts a wait that is longer than the last one.
func (at *conflict) backOff(now time.Time) {
	at.wait = min(max(2*at.wait, backoffFirst), backoffLast)
	at.until = now.Add(at.wait)
}

// Blocked starts a wait for an object that could not be created. It returns the event
// that reports the failure, and false if it was reported already.
func (c Conflicts) Blocked(step *plan.StepError) (e api.Event, report bool) {
	now, key := time.Now(), conflictOf(step.Object)
	at := c[key]
	if at == nil || now.Sub(at.last) > calm+at.wait {
		at = &conflict{since: now}
		c[key] = at
	}
	report = !at.reported
	at.last, at.differs, at.reported = now, true, true
	at.backOff(now)
	return api.Event{Kind: api.Unhealed, Object: key, Detail: step.Error()}, report
}

// Repaired records the repair of objects that a program has changed; by is empty if the program is not known. It
// returns the events of the conflicts.
func (c Conflicts) Repaired(keys map[string]bool, by string) (events []api.Event) {
	now := time.Now()
	maps.DeleteFunc(c, func(_ string, at *conflict) bool { return now.Sub(at.last) > calm+at.wait && !at.differs })
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := c.count(key, now)
		if at == nil {
			continue
		}
		events = append(events, api.Event{Kind: api.Conflicting, Object: key, By: by, Detail: fmt.Sprintf(
			"%s keeps changing %s: repaired %d times in %s; the next repair is in %s", cmp.Or(by, "another program"),
			key, at.times, at.last.Sub(at.since).Round(time.Millisecond), at.wait)})
	}
	return events
}
