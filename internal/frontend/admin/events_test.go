package admin_test

import (
	"context"
	"errors"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
)

// fakeDaemon is a daemon with a past event and the given channel of new events.
type fakeDaemon struct {
	admin.Daemon
	events chan api.Event
}

func (f *fakeDaemon) Events() []api.Event {
	return []api.Event{{Kind: api.Healed, Object: "nft table", By: "nft (process 7)"}}
}

func (f *fakeDaemon) FollowEvents(context.Context) <-chan api.Event { return f.events }

func TestEvents(t *testing.T) {
	f := &fakeDaemon{events: make(chan api.Event, 2)}
	client := admin.NewClient(serve(t, f))
	all, err := client.Events(t.Context())
	if err != nil || len(all) != 1 || all[0].By != "nft (process 7)" {
		t.Errorf("%+v, %v", all, err)
	}
	f.events <- api.Event{Object: "one"}
	var got []string
	err = client.FollowEvents(t.Context(), func(e api.Event) error {
		if got = append(got, e.Object); len(got) == 1 {
			f.events <- api.Event{Object: "two"} // while the client follows
			close(f.events)
		}
		return nil
	})
	if err != nil || len(got) != 2 || got[1] != "two" {
		t.Errorf("got the events %v, %v", got, err)
	}
}

// TestFollowEventsReturnsTheCallbacksError checks that FollowEvents ends if its
// callback returns an error.
func TestFollowEventsReturnsTheCallbacksError(t *testing.T) {
	f := &fakeDaemon{events: make(chan api.Event, 1)}
	f.events <- api.Event{Object: "one"}
	enough := errors.New("enough")
	err := admin.NewClient(serve(t, f)).FollowEvents(t.Context(), func(api.Event) error { return enough })
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	close(f.events)
}
