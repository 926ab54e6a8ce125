package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"fairlead/internal/api"
)

// pathEvents returns the past events. With the parameter follow it also returns new
// events until the client closes the connection, one JSON object per line.
const (
	pathEvents  = "/v1/events"
	paramFollow = "follow"
)

// pathChanges returns the counter of changes.
const pathChanges = "/v1/changes"

// Changes is the counter of changes.
type Changes struct {
	Count uint64 `json:"count"`
}

// EventCalls are the calls of the daemon for events.
type EventCalls interface {
	Events() []api.Event
	FollowEvents(context.Context) <-chan api.Event
	// Changes returns a counter that grows when the state of the daemon may have changed.
	Changes() uint64
}

// Events are the last events, the oldest first.
type Events struct {
	Events []api.Event `json:"events"`
}

// eventHandlers registers the handler of events.
func eventHandlers(mux *http.ServeMux, d EventCalls) {
	mux.HandleFunc("GET "+pathEvents, eventsOf(d))
	mux.HandleFunc("GET "+pathChanges, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Changes{d.Changes()})
	})
}

// eventsOf returns the handler of requests for events.
func eventsOf(d EventCalls) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has(paramFollow) {
			answer(w, http.StatusOK, Events{d.Events()})
			return
		}
		if conn, ok := r.Context().Value(follower{}).(*slotted); ok {
			done, ok := conn.follow()
			if !ok {
				refuse(w, &api.Fault{Code: api.Conflict, Err: errors.New("follow events: this caller follows " +
					"them too often: end some of the commands first")})
				return
			}
			defer done()
			w.Header().Set("Connection", "close") // its slot is free for another connection
		}
		// This response has no time limit.
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetWriteDeadline(time.Time{}), control.SetReadDeadline(time.Time{})); err != nil {
			refuse(w, fmt.Errorf("follow events: %w", err))
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.WriteHeader(http.StatusOK)
		lines := json.NewEncoder(w)
		err := control.Flush()
		for e := range d.FollowEvents(r.Context()) {
			if err != nil {
				return // the client closed the connection
			}
			if err = lines.Encode(e); err == nil {
				err = control.Flush()
			}
		}
	}
}

// Events returns the last events.
func (c *Client) Events(ctx context.Context) ([]api.Event, error) {
	var e Events
	err := c.call(ctx, http.MethodGet, pathEvents, nil, &e)
	return e.Events, err
}

// Changes returns a counter that grows when the state of the daemon may have changed, except the results of checks that
// find nothing new, and traffic counters. It begins again with the daemon.
func (c *Client) Changes(ctx context.Context) (uint64, error) {
	var n Changes
	err := c.call(ctx, http.MethodGet, pathChanges, nil, &n)
	return n.Count, err
}

// FollowEvents calls fn for the past events and for each new one, until ctx or the
// daemon ends, or fn returns an error. Returns fn's error unchanged, the error of ctx
// if ctx ended, and nil if the daemon ended.
func (c *Client) FollowEvents(ctx context.Context, fn func(api.Event) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fairlead"+pathEvents+"?"+paramFollow, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("call the daemon: %w", err)
	}
	defer response.Body.Close()
	lines := json.NewDecoder(response.Body)
	if response.StatusCode != http.StatusOK {
		return refusal(response, lines)
	}
	for {
		var e api.Event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) || ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return fmt.Errorf("read the daemon's response: %w", err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}
