package daemon

import (
	"context"

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
