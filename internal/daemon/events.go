package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// eventsKept is the number of events in the journal, eventsBehind how many events a
// follower may be behind.
const (
	eventsKept   = 500
	eventsBehind = 1000
)

// journal keeps the last events, and sends events to its followers.
type journal struct {
	mu        sync.Mutex
	events    []api.Event
	followers map[chan api.Event]bool
}

func (j *journal) add(e api.Event) {
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
func (d *Daemon) Events() []api.Event {
	d.journal.mu.Lock()
	defer d.journal.mu.Unlock()
	return slices.Clone(d.journal.events)
}

// FollowEvents returns a channel with the last events and all later ones. The channel
// is closed when ctx or the daemon ends, or when the reader is more than eventsBehind
// events behind.
func (d *Daemon) FollowEvents(ctx context.Context) <-chan api.Event {
	j := &d.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	f := make(chan api.Event, eventsBehind)
	for _, e := range j.events {
		f <- e
	}
	if j.followers == nil {
		j.followers = map[chan api.Event]bool{}
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
var informational = map[api.EventKind]bool{api.RealIsUp: true, api.RealJoined: true, api.RealLeft: true, api.DrainBegun: true, api.DrainEnded: true, api.RealEnabled: true, api.QuorumGained: true, api.ChecksBelieved: true}

// note logs an event and adds it to the journal.
func (d *Daemon) note(e api.Event) {
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

// report reports a repair.
func (d *Daemon) report(differing []plan.Op, seen kernel.PendingEvents) {
	r := heal.ReportOf(differing, seen.Author(), seen.Detached())
	for _, e := range r.Events {
		d.note(e)
	}
	for key := range r.Conflicting {
		if e, conflict := d.healer.conflicts.Repaired(key, seen.Author()); conflict {
			d.note(e)
		}
	}
	if r.Elements > 0 {
		d.cfg.Log.Warn(string(api.Healed), "object", "nft elements", "count", r.Elements)
	}
	for kind, n := range r.Kinds {
		d.cfg.Meter.Healed(kind, n)
	}
	if len(r.Kinds) > 0 {
		d.changed()
	}
}

// joinCommands joins commands into one line for the log.
func joinCommands(commands []string) string { return strings.Join(commands, "; ") }
