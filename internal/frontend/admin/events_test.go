package admin_test

import (
	"context"
	"errors"
	"testing"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
)

// notified is a daemon with events.
type notified struct {
	admin.Daemon
	events chan daemon.Event
}

func (f *notified) Events() []daemon.Event {
	return []daemon.Event{{Kind: daemon.Healed, Object: "nft table", By: "nft (process 7)"}}
}

func (f *notified) FollowEvents(context.Context) <-chan daemon.Event { return f.events }

func TestEvents(t *testing.T) {
	f := &notified{events: make(chan daemon.Event, 2)}
	client := admin.NewClient(serve(t, f))
	all, err := client.Events(t.Context())
	if err != nil || len(all) != 1 || all[0].By != "nft (process 7)" {
		t.Errorf("%+v, %v", all, err)
	}
	f.events <- daemon.Event{Object: "one"}
	var heard []string
	err = client.FollowEvents(t.Context(), func(e daemon.Event) error {
		if heard = append(heard, e.Object); len(heard) == 1 {
			f.events <- daemon.Event{Object: "two"} // while somebody follows
			close(f.events)
		}
		return nil
	})
	if err != nil || len(heard) != 2 || heard[1] != "two" {
		t.Errorf("followed %v, %v", heard, err)
	}
}

// TestWhoFollowsMayStop ends the answer with the caller.
func TestWhoFollowsMayStop(t *testing.T) {
	f := &notified{events: make(chan daemon.Event, 1)}
	f.events <- daemon.Event{Object: "one"}
	enough := errors.New("enough")
	err := admin.NewClient(serve(t, f)).FollowEvents(t.Context(), func(daemon.Event) error { return enough })
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	close(f.events)
}
