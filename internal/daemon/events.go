package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// EventKind is the kind of an event.
type EventKind string

// The kinds of event.
const (
	// Healed means that one of Fairlead's objects differed and was repaired.
	Healed EventKind = "healed"
	// Unhealed means that a repair failed. The daemon tries again.
	Unhealed EventKind = "failed"
	// Conflicting means that another program keeps changing an object: the daemon
	// waits longer before each further repair.
	Conflicting EventKind = "conflict"
	// RealIsUp and RealIsDown are results of the checks of a real server.
	RealIsUp   EventKind = "up"
	RealIsDown EventKind = "down"
	// RealJoined means that a selector has found a real server, RealLeft that a real
	// server was removed.
	RealJoined EventKind = "joined"
	RealLeft   EventKind = "left"
	// DrainBegun and DrainEnded are the start and the end of a real server's drain.
	// RealEnabled means that it gets new flows again.
	DrainBegun  EventKind = "draining"
	DrainEnded  EventKind = "drained"
	RealEnabled EventKind = "enabled"
	// ClientsReset means that clients' connections were reset because their real
	// server is down or was removed, or their service was removed.
	ClientsReset EventKind = "reset"
	// QuorumLost and QuorumGained mean that a service has fewer real servers up than
	// its quorum, or enough again.
	QuorumLost   EventKind = "quorum lost"
	QuorumGained EventKind = "quorum gained"
	// SorryUsed means that a service sends clients to its sorry server. PanicBegun
	// means that it uses all real servers although checks fail. ChecksBelieved is the
	// end of both.
	SorryUsed      EventKind = "sorry"
	PanicBegun     EventKind = "panic"
	ChecksBelieved EventKind = "recovered"
	// NetworkUnavailable means that a network cannot exist on this host for now,
	// NetworkAvailable that it can again.
	NetworkUnavailable EventKind = "unavailable"
	NetworkAvailable   EventKind = "available"
)

// Event is a change of the host or of a virtual service.
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Object is the key of the changed object in the plan, or e.g. "service web".
	Object string `json:"object"`
	// Commands are the commands of the repair, as typed in a shell.
	Commands []string `json:"commands,omitempty"`
	// By is the program that changed the object, if the kernel reports the program.
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// eventsKept is the number of events in the journal, eventsBehind how many events a
// follower may be behind.
const (
	eventsKept   = 500
	eventsBehind = 1000
)

// journal keeps the last events, and sends events to its followers.
type journal struct {
	mu        sync.Mutex
	events    []Event
	followers map[chan Event]bool
}

func (j *journal) add(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.events = append(j.events, e); len(j.events) > eventsKept {
		j.events = slices.Clone(j.events[len(j.events)-eventsKept:])
	}
	for f := range j.followers {
		select {
		case f <- e:
		default: // it is too far behind
			delete(j.followers, f)
			close(f)
		}
	}
}

// Events returns the last events, oldest first.
func (d *Daemon) Events() []Event {
	d.journal.mu.Lock()
	defer d.journal.mu.Unlock()
	return slices.Clone(d.journal.events)
}

// FollowEvents returns a channel with the last events and all later ones. The channel
// is closed when ctx or the daemon ends, or when the reader is more than eventsBehind
// events behind.
func (d *Daemon) FollowEvents(ctx context.Context) <-chan Event {
	j := &d.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	f := make(chan Event, eventsBehind)
	for _, e := range j.events {
		f <- e
	}
	if j.followers == nil {
		j.followers = map[chan Event]bool{}
	}
	j.followers[f] = true
	end := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.followers[f] {
			delete(j.followers, f)
			close(f)
		}
	}
	context.AfterFunc(ctx, end)
	context.AfterFunc(d.life, end)
	return f
}

// informational are the kinds of events that need no action.
var informational = map[EventKind]bool{RealIsUp: true, RealJoined: true, RealLeft: true, DrainBegun: true, DrainEnded: true, RealEnabled: true, QuorumGained: true, ChecksBelieved: true}

// note logs an event and adds it to the journal.
func (d *Daemon) note(e Event) {
	e.Time = time.Now()
	args := []any{"object", e.Object}
	if len(e.Commands) > 0 {
		args = append(args, "commands", joinCommands(e.Commands))
	}
	if e.By != "" {
		args = append(args, "by", e.By)
	}
	if e.Detail != "" {
		args = append(args, "detail", e.Detail)
	}
	level := slog.LevelWarn
	if informational[e.Kind] {
		level = slog.LevelInfo
	}
	d.cfg.Log.Log(d.life, level, string(e.Kind), args...)
	d.journal.add(e)
}

// report notes an event for each repaired object. It does not report that programs
// were attached to a new link of the host.
func (d *Daemon) report(differing []plan.Op, seen kernel.PendingEvents) {
	table := slices.ContainsFunc(differing, func(op plan.Op) bool { _, is := op.Object.(plan.Table); return is })
	kinds, conflicting := map[string]int{}, map[string]bool{}
	elements := 0
	remade := map[string]bool{}
	for _, op := range differing {
		for _, end := range plan.Ends(op.Object) {
			remade[end] = true
		}
	}
	for _, op := range differing {
		_, uplinks := op.Object.(plan.Uplinks)
		if op.Old != nil && plan.Equal(op.Old, op.Object) && !op.Del || uplinks && !seen.Detached() {
			continue // it was set again because its base was
		}
		kinds[plan.KindOf(op.Object)]++
		if !remade[plan.Base(op.Object)] { // if so, it was removed with its link
			conflicting[conflictOf(op.Object)] = true
		}
		if table && plan.KindOf(op.Object) == "nft element" {
			elements++ // they are part of the table's event
			continue
		}
		e := Event{Kind: Healed, Object: op.Object.Key(), Commands: op.Commands()}
		if strings.HasPrefix(e.Object, "nft ") {
			e.By = seen.Author()
		}
		if _, is := op.Object.(plan.Table); is {
			e.Commands = nil // the whole table
		}
		d.note(e)
	}
	for key := range conflicting {
		d.conflict(key, seen.Author())
	}
	if elements > 0 {
		d.cfg.Log.Warn(string(Healed), "object", "nft elements", "count", elements)
	}
	for kind, n := range kinds {
		d.cfg.Meter.Healed(kind, n)
	}
	if len(kinds) > 0 {
		d.changed()
	}
}

// joinCommands joins commands into one line for the log.
func joinCommands(commands []string) string { return strings.Join(commands, "; ") }
