package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// event is an event of an object, as the engine's API names it.
type event struct {
	Type, Action string
	TimeNano     int64 `json:"timeNano"`
	Actor        struct {
		ID         string
		Attributes map[string]string
	}
}

// action returns the action without its details: "health_status: healthy" is health_status.
func (e *event) action() string {
	action, _, _ := strings.Cut(e.Action, ":")
	return action
}

// before reports whether the event is older than the time. An engine may leave out the time of events.
func (e *event) before(t time.Time) bool {
	return e.TimeNano != 0 && time.Unix(0, e.TimeNano).Before(t)
}

// events returns the stream of events of objects of these types. It begins with the events that
// happened since the last one that was handled, which the engine keeps for a while: a stop signal
// between two subscriptions must not be missed.
func (e *engine) events(ctx context.Context, types ...string) (io.ReadCloser, error) {
	filter, err := json.Marshal(map[string][]string{"type": types})
	if err != nil {
		return nil, err
	}
	values := url.Values{"filters": {string(filter)}}
	if e.since == 0 {
		if e.since, err = e.now(ctx, "/events?"+values.Encode()); err != nil {
			return nil, err
		}
	}
	if e.since != 0 {
		second := int64(time.Second)
		values.Set("since", fmt.Sprintf("%d.%09d", e.since/second, e.since%second))
	}
	return e.open(ctx, "/events?"+values.Encode())
}

// now returns the second of the engine's clock at which it answers a request, in nanoseconds, 0 if the answer
// does not have it. An engine answers a request for events before it subscribes the client. A client that
// asks for the containers in between would never learn of a container that started after that.
func (e *engine) now(ctx context.Context, path string) (int64, error) {
	answer, err := e.request(ctx, path)
	if err != nil {
		return 0, err
	}
	answer.Body.Close()
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return 0, nil
	}
	return at.UnixNano(), nil
}

// mostWaiting is how many events may wait. An engine drops events that a client does not read soon, so
// they are read at once; with too many, all is read anew.
const mostWaiting = 1 << 14

// errTooMany is the error if more events wait.
var errTooMany = fmt.Errorf("more than %d events wait", mostWaiting)

// subscribe returns the events of objects of these types until ctx ends or the stream ends; then the
// channel is closed, and the other one has the error that ended it.
func (e *engine) subscribe(ctx context.Context, types ...string) (<-chan event, <-chan error, error) {
	stream, err := e.events(ctx, types...)
	if err != nil {
		return nil, nil, err
	}
	events, ended := make(chan event, mostWaiting), make(chan error, 1)
	go func() {
		defer stream.Close()
		defer close(events)
		for decoder := json.NewDecoder(stream); ; {
			var next event
			err := decoder.Decode(&next)
			if err == nil && len(events) == cap(events) {
				err = errTooMany
			}
			if err != nil {
				ended <- errors.Join(errEnded, err)
				return
			}
			events <- next
		}
	}()
	return events, ended, nil
}

// handled notes that the event need not be sent again.
func (e *engine) handled(done event) { e.since = max(e.since, done.TimeNano+1) }
