// Package journal keeps the last events, and sends events to those who follow them.
package journal

import (
	"context"
	"slices"
	"sync"

	"fairlead/internal/api"
)

// eventsKept is the number of events in the journal, eventsBehind how many events a
// follower may be behind.
const (
	eventsKept   = 500
	eventsBehind = 1000
)

// Journal keeps the last events, and sends events to its followers.
type Journal struct {
	mu        sync.Mutex
	events    []api.Event
	followers map[chan api.Event]bool
}

// Add adds an event. A follower that is too far behind is cut off.
func (j *Journal) Add(e api.Event) {
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

// All returns the kept events, oldest first.
func (j *Journal) All() []api.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// Follow returns a channel with the kept events and all later ones. The channel is
// closed when one of the contexts ends, or when the reader is more than eventsBehind
// events behind.
func (j *Journal) Follow(ctx, life context.Context) <-chan api.Event {
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
