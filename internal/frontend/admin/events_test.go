package admin_test

import (
	"context"
	"errors"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
)

// fakeEvents are a daemon's events: a past event and the given channel of new events.
type fakeEvents struct {
	events chan api.Event
}

func (f *fakeEvents) Events() []api.Event {
	return []api.Event{{Kind: api.Healed, Object: "nft table", By: "nft (process 7)"}}
}

func (f *fakeEvents) Changes() uint64                               { return 0 }
func (f *fakeEvents) FollowEvents(context.Context) <-chan api.Event { return f.events }

// withEvents returns the calls of a fake with these events.
func withEvents(e admin.EventCalls) admin.Daemon {
	d := new(fake).daemon()
	d.Events = e
	return d
}

func TestEvents(t *testing.T) {
	f := &fakeEvents{events: make(chan api.Event, 2)}
	client := admin.NewClient(admintest.Serve(t, withEvents(f)))
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
	f := &fakeEvents{events: make(chan api.Event, 1)}
	f.events <- api.Event{Object: "one"}
	enough := errors.New("enough")
	err := admin.NewClient(admintest.Serve(t, withEvents(f))).FollowEvents(t.Context(),
		func(api.Event) error { return enough })
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	close(f.events)
}
