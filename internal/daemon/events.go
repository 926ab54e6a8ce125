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

// EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// Healed is something of ours that strayed and was put right.
	Healed EventKind = "healed"
	// Unhealed could not be put right, and is tried again.
	Unhealed EventKind = "failed"
	// Conflicting is something that somebody else keeps changing: we wait longer
	// and longer before we put it right again.
	Conflicting EventKind = "conflict"
	// RealIsUp and RealIsDown are what the checks of a real server say.
	RealIsUp   EventKind = "up"
	RealIsDown EventKind = "down"
	// RealJoined is a real server that a selector has found, RealLeft one that
	// is gone.
	RealJoined EventKind = "joined"
	RealLeft   EventKind = "left"
	// DrainBegun and DrainEnded are of a real server that gets no new flows,
	// RealEnabled one that gets them again.
	DrainBegun  EventKind = "draining"
	DrainEnded  EventKind = "drained"
	RealEnabled EventKind = "enabled"
	// ClientsReset are connections that were ended because their real server is
	// down, or was taken out, or the service was.
	ClientsReset EventKind = "reset"
	// QuorumLost and QuorumGained are of a service's real servers.
	QuorumLost   EventKind = "quorum lost"
	QuorumGained EventKind = "quorum gained"
	// SorryUsed is a service that sends clients to its sorry server, PanicBegun
	// one that uses all real servers whatever the checks say, ChecksBelieved the
	// end of both.
	SorryUsed      EventKind = "sorry"
	PanicBegun     EventKind = "panic"
	ChecksBelieved EventKind = "recovered"
	// NetworkUnavailable is a network that cannot be on this host for now, Reunited one that
	// can be again.
	NetworkUnavailable EventKind = "unavailable"
	NetworkAvailable   EventKind = "available"
)

// Event is something that happened to the host, or to a virtual service.
type Event struct {
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Object is what it happened to, as the plan has it.
	Object string `json:"object"`
	// Commands are the step that was taken, as typed in a shell.
	Commands []string `json:"commands,omitempty"`
	// By is who had changed it, where the kernel tells.
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// How many events are kept, and how many a follower may be behind.
const (
	eventsKept   = 500
	eventsBehind = 1000
)

// journal keeps the last events, and tells them to those who follow.
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
		default: // it does not listen
			delete(j.followers, f)
			close(f)
		}
	}
}

// Events returns the last events, the oldest first.
func (d *Daemon) Events() []Event {
	d.journal.mu.Lock()
	defer d.journal.mu.Unlock()
	return slices.Clone(d.journal.events)
}

// FollowEvents returns the last events and then those to come, until ctx or the
// daemon ends, or the reader is far behind.
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

// good are the kinds of event that nobody needs to look after.
var good = map[EventKind]bool{RealIsUp: true, RealJoined: true, RealLeft: true, DrainBegun: true, DrainEnded: true, RealEnabled: true, QuorumGained: true, ChecksBelieved: true}

// note logs an event and keeps it.
func (d *Daemon) note(e Event) {
	e.Time = time.Now()
	args := []any{"object", e.Object}
	if len(e.Commands) > 0 {
		args = append(args, "commands", shown(e.Commands))
	}
	if e.By != "" {
		args = append(args, "by", e.By)
	}
	if e.Detail != "" {
		args = append(args, "detail", e.Detail)
	}
	level := slog.LevelWarn
	if good[e.Kind] {
		level = slog.LevelInfo
	}
	d.cfg.Log.Log(d.life, level, string(e.Kind), args...)
	d.journal.add(e)
}

// report tells of what was put right. That a new link of the host's has got our
// program is no news.
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
		if op.Old == op.Object && !op.Del || uplinks && !seen.Detached() {
			continue // it is set again because what it stands on was
		}
		kinds[kindOf(op.Object)]++
		if !remade[plan.Base(op.Object)] { // else it went with its link
			conflicting[conflictOf(op.Object)] = true
		}
		if table && kindOf(op.Object) == "nft element" {
			elements++ // they come with the table
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

// kindOf names the kind of an object, e.g. "link", "nft element".
func kindOf(o plan.Object) string {
	words := strings.Fields(o.Key())
	switch o.(type) {
	case plan.NFTMapping, plan.Member, plan.Proxied:
		return "nft element"
	}
	if words[0] == "bpf" || words[0] == "nft" {
		return words[0] + " " + words[1]
	}
	return words[0]
}

// shown joins commands into one line of a log.
func shown(commands []string) string { return strings.Join(commands, "; ") }
