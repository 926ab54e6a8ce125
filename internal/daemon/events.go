package daemon

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// Events returns the last events, oldest first.
func (d *Daemon) Events() []api.Event {
	return d.journal.All()
}

// FollowEvents returns a channel with the last events and all later ones. The channel
// is closed when ctx or the daemon ends, or when the reader is too far
// behind.
func (d *Daemon) FollowEvents(ctx context.Context) <-chan api.Event {
	return d.journal.Follow(ctx, d.life)
}

// informational are the kinds of events that need no action.
var informational = map[api.EventKind]bool{api.RealIsUp: true, api.RealJoined: true, api.RealLeft: true,
	api.DrainBegun: true, api.DrainEnded: true, api.RealEnabled: true, api.QuorumGained: true, api.ChecksBelieved: true}

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
	d.journal.Add(e)
}

// report reports a repair.
func (d *Daemon) report(differing []plan.Op, seen watch.PendingEvents) {
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
