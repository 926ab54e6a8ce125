package daemon

import (
	"context"
	"slices"
	"sync"
	"time"
)

// EventKind says what happened.
type EventKind string

// The kinds of event.
const (
	// Healed is something of ours that strayed and was put right.
	Healed EventKind = "healed"
	// Unhealed could not be put right, and is tried again.
	Unhealed EventKind = "failed"
	// Contested is something that somebody else keeps changing: we wait longer
	// and longer before we put it right again.
	Contested EventKind = "contested"
	// Parted is a network that cannot be on this host for now, Reunited one that
	// can be again.
	Parted   EventKind = "parted"
	Reunited EventKind = "reunited"
)

// Event is something that happened to the host without anybody asking us.
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
	d.cfg.Log.Warn(string(e.Kind), args...)
	d.journal.add(e)
}
