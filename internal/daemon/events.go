package daemon

import (
	"context"

	"fairlead/internal/api"
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

// Note logs an event of another part of the process and adds it to the journal. It sets
// the event's time.
func (d *Daemon) Note(e api.Event) { d.note(e) }
