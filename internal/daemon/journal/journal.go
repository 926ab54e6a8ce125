// Package journal logs events, keeps the last ones, sends events to those who follow them, and counts changes. Its
// mutex is its own, and its holder waits for nothing.
package journal

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/api"
)

// eventsKept is the number of events in the journal, eventsBehind how many events a
// follower may be behind.
const (
	eventsKept   = 500
	eventsBehind = 1000
)

// Journal logs events, keeps the last ones, and sends events to its followers. Its methods may be called concurrently.
type Journal struct {
	log *slog.Logger
	// changes counts the events, and what else has changed.
	changes atomic.Uint64

	mu        sync.Mutex
	events    []api.Event
	followers map[chan api.Event]bool
}

// New returns an empty Journal.
func New(log *slog.Logger) *Journal { return &Journal{log: log} }

// informational are the kinds of events that need no action.
var informational = map[api.EventKind]bool{api.RealIsUp: true, api.RealJoined: true, api.RealLeft: true,
	api.DrainBegun: true, api.DrainEnded: true, api.RealEnabled: true, api.QuorumGained: true, api.ChecksBelieved: true,
	api.NodeJoined: true, api.NodeLeft: true, api.NodeDrained: true, api.NodeEnabled: true,
	api.EtcdAnswers: true, api.ClusterFollowed: true}

// Note sets the event's time, logs the event and adds it to the journal.
func (j *Journal) Note(e api.Event) {
	e.Time = time.Now()
	args := []any{"object", e.Object}
	if len(e.Commands) > 0 {
		args = append(args, "commands", strings.Join(e.Commands, "; "))
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
	j.log.Log(context.Background(), level, string(e.Kind), args...)
	j.add(e)
}

// Count counts a change without an event.
func (j *Journal) Count() { j.changes.Add(1) }

// Changes returns the number of changes and events.
func (j *Journal) Changes() uint64 { return j.changes.Load() }

// add adds an event. A follower that is too far behind is cut off.
func (j *Journal) add(e api.Event) {
	defer j.Count()
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

// Events returns the kept events, oldest first.
func (j *Journal) Events() []api.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// FollowEvents returns a channel with the kept events and all later ones. The channel is
// closed when one of the contexts ends, or when the reader is more than eventsBehind
// events behind.
func (j *Journal) FollowEvents(ctx, life context.Context) <-chan api.Event {
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
	context.AfterFunc(life, end)
	return f
}
